//! What the words by which the GPU backend calls faults mean by the rules.

use muster_health::rules::Rule;
use muster_model::health::{Component, Severity};
use muster_model::ids::GpuUuid;

use crate::health::THIS_HOST;

/// The word for GPUs of which the driver says nothing at all: it hides what was said before.
pub(super) const NO_DATA: &str = "no-data";
/// How words for XIDs begin.
const XID: &str = "xid-";

/// A word and the rule that it meets.
#[derive(Debug)]
pub(super) struct Signal {
    /// How the word begins.
    word: &'static str,
    /// The rule.
    pub(super) rule: &'static str,
    /// Its metric.
    pub(super) metric: &'static str,
    /// Whether it is about the host rather than the GPU.
    pub(super) is_hosts: bool,
    /// Whether it is plain of the device itself, so that the GPU is unfit while it lasts, whatever the rules say.
    is_plain: bool,
}

/// All words but those for XIDs. A task that cannot be killed, and an error that NVML does not explain, meet no rule: the
/// GPU is unfit while they last, and no more follows. A GPU that is lost, or whose memory somebody holds, is unfit as well;
/// everything else is unfit as far as the rules say.
const SIGNALS: &[Signal] = &[
    of_gpu("ecc-", "ecc_unc_volatile", "errors_increase"),
    plain("gpu-lost", "gpu_lost", "lost"),
    of_gpu("reset-required", "gpu_reset_required", "required"),
    of_gpu("inforom-corrupt", "inforom", "corrupt"),
    plain("memory-held", "mem_leak", "held_mib"),
    Signal {
        word: "driver-version-mismatch",
        rule: "driver_lib_mismatch",
        metric: "mismatch",
        is_hosts: true,
        is_plain: false,
    },
];

const fn of_gpu(word: &'static str, rule: &'static str, metric: &'static str) -> Signal {
    Signal {
        word,
        rule,
        metric,
        is_hosts: false,
        is_plain: false,
    }
}

const fn plain(word: &'static str, rule: &'static str, metric: &'static str) -> Signal {
    Signal {
        is_plain: true,
        ..of_gpu(word, rule, metric)
    }
}

/// Whether a word makes a GPU unfit whatever the rules say: because it is plain of the device, or because no rule is about it.
#[must_use]
pub(crate) fn makes_unfit(word: &str) -> bool {
    xid(word).is_none() && find(word).is_none_or(|signal| signal.is_plain)
}

/// The signal of a word, if a rule is about it.
pub(super) fn find(word: &str) -> Option<&'static Signal> {
    SIGNALS.iter().find(|signal| word.starts_with(signal.word))
}

/// The XID that a word names.
pub(super) fn xid(word: &str) -> Option<u32> {
    word.strip_prefix(XID)?.parse().ok()
}

impl Signal {
    /// What it is about.
    pub(super) const fn component(&self, gpu: GpuUuid) -> Component {
        if self.is_hosts {
            THIS_HOST
        } else {
            Component::Gpu(gpu)
        }
    }

    /// How bad a rule takes it to be: the worst that its metric may mean.
    pub(super) fn severity(&self, rule: &Rule) -> Severity {
        let is_fatal = { rule.fatal.when.iter() }.any(|it| it.metric == self.metric);
        if is_fatal {
            Severity::Fatal
        } else {
            Severity::Degraded
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use muster_health::rules::RuleSet;

    use super::*;

    #[test]
    fn every_word_has_a_shipped_rule_with_its_metric() {
        let rules = RuleSet::shipped().unwrap();
        for signal in SIGNALS {
            let rule = rules.rule(signal.rule).unwrap();
            let mut conditions = rule.degraded.when.iter().chain(&rule.fatal.when);
            assert!(
                conditions.any(|it| it.metric == signal.metric),
                "{signal:?}"
            );
        }
        let severity = |word: &str| {
            let signal = find(word)?;
            Some(signal.severity(rules.rule(signal.rule)?))
        };
        assert_eq!(severity("ecc-uncorrectable"), Some(Severity::Fatal));
        assert_eq!(severity("memory-held"), Some(Severity::Degraded));
        assert_eq!(severity("task-stuck"), None);
        assert_eq!(
            (xid("xid-79"), xid("xid-"), xid("ecc-7")),
            (Some(79), None, None)
        );
    }
}
