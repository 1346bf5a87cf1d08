//! Rules for the fault signals of the GPU backend.

use muster_health::rules::Rule;
use muster_model::health::{Component, Severity};
use muster_model::ids::GpuUuid;

use crate::health::THIS_HOST;

/// The signal of GPUs about which the driver reports nothing at all: it hides earlier signals.
pub(super) const NO_DATA: &str = "no-data";
/// Prefix of signals for XIDs.
const XID: &str = "xid-";

/// A signal and its rule.
#[derive(Debug)]
pub(super) struct Signal {
    /// Prefix of the names of such signals.
    name: &'static str,
    /// The rule.
    pub(super) rule: &'static str,
    /// Its metric.
    pub(super) metric: &'static str,
    /// Whether it concerns the host rather than the GPU.
    pub(super) is_hosts: bool,
    /// Whether it is a definite fault of the device, so that the GPU is unfit as long as it holds,
    /// regardless of the rules.
    is_plain: bool,
}

/// All signals except XIDs. A task that cannot be killed, and an error that NVML does not explain, have no
/// rule: the GPU is unfit as long as they hold, without further consequences. A lost GPU, or one whose
/// memory is in use, is unfit as well; for all other signals the rules decide.
const SIGNALS: &[Signal] = &[
    of_gpu("ecc-", "ecc_unc_volatile", "errors_increase"),
    plain("gpu-lost", "gpu_lost", "lost"),
    of_gpu("reset-required", "gpu_reset_required", "required"),
    of_gpu("inforom-corrupt", "inforom", "corrupt"),
    plain("memory-held", "mem_leak", "held_mib"),
    Signal {
        name: "driver-version-mismatch",
        rule: "driver_lib_mismatch",
        metric: "mismatch",
        is_hosts: true,
        is_plain: false,
    },
];

const fn of_gpu(name: &'static str, rule: &'static str, metric: &'static str) -> Signal {
    Signal {
        name,
        rule,
        metric,
        is_hosts: false,
        is_plain: false,
    }
}

const fn plain(name: &'static str, rule: &'static str, metric: &'static str) -> Signal {
    Signal {
        is_plain: true,
        ..of_gpu(name, rule, metric)
    }
}

/// Whether a signal makes a GPU unfit regardless of the rules: as a definite fault of the device, or
/// because no rule covers it.
#[must_use]
pub(crate) fn makes_unfit(name: &str) -> bool {
    xid(name).is_none() && find(name).is_none_or(|signal| signal.is_plain)
}

/// The signal with this name, if a rule covers it.
pub(super) fn find(name: &str) -> Option<&'static Signal> {
    SIGNALS.iter().find(|signal| name.starts_with(signal.name))
}

/// The signal of a rule.
pub(super) fn of_rule(rule: &str) -> Option<&'static Signal> {
    SIGNALS.iter().find(|signal| signal.rule == rule)
}

/// The XID in a signal's name.
pub(super) fn xid(name: &str) -> Option<u32> {
    name.strip_prefix(XID)?.parse().ok()
}

impl Signal {
    /// The affected component.
    pub(super) const fn component(&self, gpu: GpuUuid) -> Component {
        if self.is_hosts {
            THIS_HOST
        } else {
            Component::Gpu(gpu)
        }
    }

    /// Severity under a rule: the worst one of its metric.
    pub(super) fn severity(&self, rule: &Rule) -> Severity {
        let is_fatal = rule.fatal.when.iter().any(|it| it.metric == self.metric);
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
    fn every_signal_has_a_shipped_rule_with_its_metric() {
        let rules = RuleSet::shipped().unwrap();
        for signal in SIGNALS {
            let rule = rules.rule(signal.rule).unwrap();
            let mut conditions = rule.degraded.when.iter().chain(&rule.fatal.when);
            assert!(
                conditions.any(|it| it.metric == signal.metric),
                "{signal:?}"
            );
        }
        let severity = |name: &str| {
            let signal = find(name)?;
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
