//! Injected hardware faults: what workers observe of them, and their effect on tasks.
//!
//! A file of outages says when a part was out of service and why. Here the part is *faulty* for that time,
//! and it is up to the engine to detect it and take it out of placement.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use muster_health::rules::RuleSet;
use muster_model::health::{Component, Severity};
use muster_model::ids::HostId;
use muster_model::spec::{JobSpec, RetryPolicy};

use crate::trace::{Cluster, Ending, Outage, TraceJob};
use crate::workload::OutageTarget;

/// The adapter that is faulty if an outage only says that one is.
const ADAPTER: &str = "mlx5_0/1";
/// The rule of a false alarm: it acts on a count alone.
const WRONG_RULE: &str = "xid31_same_gpu";
/// Delay until a worker observes a state that it polls: half of the 30 s between two readings.
const SAMPLED_MS: u64 = 15_000;
/// Delay for a state that must last for four minutes.
const LASTING_MS: u64 = 240_000;

/// A part that is faulty for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HardwareFault {
    pub(crate) place: OutageTarget,
    pub(crate) start_ms: u64,
    pub(crate) end_ms: u64,
    /// The worker's finding; `None` if there is no sign of the fault.
    pub(crate) sign: Option<Sign>,
    pub(crate) effect: FaultEffect,
    /// Whether it is a false alarm: a worker finds it, but nothing is faulty.
    pub(crate) is_false: bool,
}

/// A worker's finding, and its delay after the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sign {
    pub(crate) rule: &'static str,
    pub(crate) after_ms: u64,
    part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Gpu,
    Adapter,
    Host,
}

/// Effect on tasks that use a faulty part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FaultEffect {
    /// None: the part is slow, or has a spare.
    None,
    /// Tasks fail at once, with this error output.
    Always(&'static str),
    /// Tasks of gangs over several hosts fail, with this error output.
    Gangs(&'static str),
    /// Tasks fail now and then, without a message.
    Sometimes,
}

impl HardwareFault {
    /// Severity of a worker's finding.
    pub(crate) const SEVERITY: Severity = Severity::Fatal;

    /// Faults from the outages of a file. The nodes that it names are spread evenly over the hosts, so that
    /// no rack has them all; nodes beyond the last host are left out.
    pub(crate) fn of(outages: &[Outage], cluster: &Cluster) -> Vec<Self> {
        let nodes: BTreeSet<&str> = outages.iter().map(|outage| outage.node.as_str()).collect();
        let stride = (cluster.hosts.len() / nodes.len().max(1)).max(1);
        let hosts: BTreeMap<&str, usize> = nodes.into_iter().zip((0..).step_by(stride)).collect();
        let known = outages.iter().zip(0u32..).filter_map(|(outage, number)| {
            let host = *hosts.get(outage.node.as_str())?;
            let gpus = cluster.hosts.get(host)?.gpus;
            // The file may not name the GPU: then GPUs are chosen in turn.
            let gpu = outage.gpu.or((gpus > 0).then(|| number % gpus.max(1)));
            Some(Self::by_cause(outage, host, gpu))
        });
        known.collect()
    }

    fn by_cause(outage: &Outage, host: usize, gpu: Option<u32>) -> Self {
        let known = CAUSES
            .iter()
            .find(|(pattern, ..)| outage.cause.contains(pattern));
        let (part, sign, effect) = known
            .map_or((Part::Host, None, FaultEffect::Sometimes), |known| {
                (known.1, Some((known.2, known.3)), known.4)
            });
        let place = match (part, gpu) {
            (Part::Gpu, Some(gpu)) => OutageTarget::Gpu(host, gpu),
            _ => OutageTarget::Host(host),
        };
        let sign = sign.map(|(rule, after_ms)| Sign {
            rule,
            after_ms,
            part,
        });
        Self {
            place,
            start_ms: outage.start_ms,
            end_ms: outage.end_ms,
            sign,
            effect,
            is_false: false,
        }
    }

    /// A false alarm: a wrong rule finds all GPUs of the given percentage of hosts faulty at once, for a
    /// while.
    pub(crate) fn false_alarm(
        cluster: &Cluster,
        percent: u64,
        span_ms: Range<u64>,
    ) -> impl Iterator<Item = Self> {
        let hosts = cluster.hosts.iter().enumerate();
        let affected = hosts.filter(move |(host, _)| hash(&[*host as u64]) % 100 < percent);
        let gpus = affected.flat_map(|(host, known)| {
            (0..known.gpus).map(move |index| OutageTarget::Gpu(host, index))
        });
        gpus.map(move |place| Self {
            place,
            start_ms: span_ms.start,
            end_ms: span_ms.end,
            sign: Some(Sign {
                rule: WRONG_RULE,
                after_ms: SAMPLED_MS,
                part: Part::Gpu,
            }),
            effect: FaultEffect::None,
            is_false: true,
        })
    }

    pub(crate) const fn host(&self) -> usize {
        match self.place {
            OutageTarget::Host(host) | OutageTarget::Gpu(host, _) => host,
        }
    }

    /// The component that a worker's finding is about.
    pub(crate) fn component(&self, host: HostId, gpu: impl Fn(u32) -> Component) -> Component {
        match (self.place, self.sign.map(|sign| sign.part)) {
            (OutageTarget::Gpu(_, index), _) => gpu(index),
            (OutageTarget::Host(_), Some(Part::Adapter)) => Component::Nic {
                host,
                name: ADAPTER.to_owned(),
            },
            (OutageTarget::Host(_), _) => Component::Host(host),
        }
    }
}

/// Words of an outage's cause, the faulty part, the rule that finds it and its delay, and the effect on
/// tasks. The first match counts; faults with any other cause have no sign, and tasks die now and then.
type Cause = (&'static str, Part, &'static str, u64, FaultEffect);

const CUDA_ECC: &str = "RuntimeError: CUDA error: uncorrectable ECC error encountered";
const CUDA_UNKNOWN: &str = "RuntimeError: CUDA error: unknown error";
const GPU_GONE: &str = "RuntimeError: CUDA error: GPU is lost";
const NETWORK: &str = "NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0";
const STORAGE: &str = "OSError: [Errno 30] Read-only file system";

#[rustfmt::skip]
const CAUSES: &[Cause] = &[
    ("DBE", Part::Gpu, "ecc_unc_volatile", SAMPLED_MS, FaultEffect::Always(CUDA_ECC)),
    ("xid Error", Part::Gpu, "gpu_reset_required", SAMPLED_MS, FaultEffect::Always(CUDA_UNKNOWN)),
    ("device unknow error", Part::Gpu, "gpu_reset_required", SAMPLED_MS, FaultEffect::Always(CUDA_UNKNOWN)),
    ("GPU Lost", Part::Gpu, "gpu_lost", 2 * SAMPLED_MS, FaultEffect::Always(GPU_GONE)),
    ("PCI link width", Part::Gpu, "pcie_link", 3 * SAMPLED_MS, FaultEffect::None),
    ("Temperature High", Part::Gpu, "temp_core", SAMPLED_MS, FaultEffect::None),
    ("nvidia-smi Timeout", Part::Host, "nvml_latency", LASTING_MS, FaultEffect::None),
    ("Link Down", Part::Adapter, "ib_state", LASTING_MS, FaultEffect::Gangs(NETWORK)),
    ("NIC Lost", Part::Adapter, "ib_state", LASTING_MS, FaultEffect::Gangs(NETWORK)),
    ("NIC Link Speed low", Part::Adapter, "ib_state", LASTING_MS, FaultEffect::None),
    ("NIC PCI link Width low", Part::Adapter, "ib_state", LASTING_MS, FaultEffect::None),
    ("Power Supply", Part::Host, "ipmi_sel", SAMPLED_MS, FaultEffect::None),
    ("Fan", Part::Host, "ipmi_sel", SAMPLED_MS, FaultEffect::None),
    ("Motherboard Battery", Part::Host, "ipmi_sel", SAMPLED_MS, FaultEffect::None),
    ("File System", Part::Host, "fs_readonly", SAMPLED_MS, FaultEffect::Always(STORAGE)),
];

/// Degree to which Muster's health features are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum HealthFeatures {
    /// Nothing is blocked, whatever is found.
    Nothing,
    /// A finding blocks the whole host.
    BlockHosts,
    /// A finding blocks the faulty part only.
    BlockParts,
    /// In addition, failures are attributed: jobs are not charged for infrastructure failures, and hardware
    /// that fails repeatedly is checked.
    Attribute,
    /// In addition, hosts that fail more often than others are drained.
    Lemons,
}

impl HealthFeatures {
    /// All levels, each including the previous ones.
    pub const ALL: [Self; 5] = [
        Self::Nothing,
        Self::BlockHosts,
        Self::BlockParts,
        Self::Attribute,
        Self::Lemons,
    ];

    /// Whether failures are attributed.
    pub(crate) fn attributes(self) -> bool {
        self >= Self::Attribute
    }

    /// The rules for this level.
    pub(crate) fn rules(self) -> String {
        let shipped = RuleSet::SHIPPED_TEXT;
        match self {
            Self::Nothing => shipped.replace("mode = \"enforce\"", "mode = \"observe\""),
            Self::BlockHosts => without(&["history", "lemon"], shipped)
                .replace("block = \"gpu\"", "block = \"host\"")
                .replace(
                    "block = \"gpu_at_task_end\"",
                    "block = \"host_at_task_end\"",
                ),
            Self::BlockParts => without(&["history", "lemon"], shipped),
            Self::Attribute => without(&["lemon"], shipped),
            Self::Lemons => shipped.to_owned(),
        }
    }
}

/// The rules, with the named ones set to observe only.
fn without(names: &[&str], rules: &str) -> String {
    let mut is_off = false;
    let mut text = String::new();
    for line in rules.lines() {
        if let Some(name) = line.strip_prefix('[') {
            is_off = names.contains(&name.trim_end_matches(']'));
        }
        let line = match is_off {
            true => line.replace("\"enforce\"", "\"observe\""),
            false => line.to_owned(),
        };
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// Retries of a job; the number of users of one virtual cluster follows. Used where the trace gives
/// neither.
const RETRIES: u32 = 3;
const BACKOFF_MS: u64 = 10_000;
const USERS: u64 = 20;
/// Jobs of a virtual cluster submitted within this time are from one user.
const SESSION_MS: u64 = 3_600_000;
/// Percentage of failed jobs that print a conclusive error message: assumed, since the trace has no output.
const CONCLUSIVE_PERCENT: u64 = 50;

/// The job as submitted to a cluster with health features: with retries, unless it is to fail for its own
/// reasons, and with a user of its own.
pub(crate) fn prepare_spec(spec: &mut JobSpec, job: &TraceJob) {
    let has_own_reason = job.ending == Some(Ending::Failed);
    spec.retry = RetryPolicy {
        retries_max: if has_own_reason { 0 } else { RETRIES },
        backoff_ms: BACKOFF_MS,
    };
    if job.user.is_none() {
        let session = hash_of(&spec.queue) ^ (job.submit_ms / SESSION_MS);
        spec.user = format!("{}-{}", spec.queue, hash(&[session]) % USERS);
    }
}

/// The error output of a job that fails for its own reasons.
pub(crate) fn failure_message(job: &TraceJob) -> &'static str {
    let is_conclusive = hash_of(&job.name) / USERS % 100 < CONCLUSIVE_PERCENT;
    if is_conclusive {
        "TypeError: forward() missing 1 required positional argument"
    } else {
        ""
    }
}

fn hash_of(text: &str) -> u64 {
    let words: Vec<u64> = text.bytes().map(u64::from).collect();
    hash(&words)
}

/// A stable hash of the words: the finaliser of `SplitMix64` (Steele and others, OOPSLA'14).
pub(crate) fn hash(words: &[u64]) -> u64 {
    words.iter().fold(0x9e37_79b9_7f4a_7c15, |hash, word| {
        let mut mixed = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_health::rules::Mode;
    use muster_model::health::Scope;

    use super::*;

    fn outage(cause: &str) -> Outage {
        Outage {
            node: "n1".to_owned(),
            gpu: None,
            start_ms: 5,
            end_ms: 9,
            cause: cause.to_owned(),
        }
    }

    #[test]
    fn outages_become_faults_of_the_parts_they_name_and_every_cause_has_an_enforced_rule() {
        let cluster = Cluster::uniform(1, 8, "H100");
        let causes = [
            outage("GPU: GPU DBE(Double Bit ECC) > Threshold"),
            outage("Parameter Plane Cable: Link Down"),
            outage("Unknown Error: Unknown Error"),
        ];
        let faults = HardwareFault::of(&causes, &cluster);
        assert_eq!(faults[0].place, OutageTarget::Gpu(0, 0));
        assert_eq!(faults[1].place, OutageTarget::Host(0));
        assert_eq!(faults[2].sign, None, "no sign");
        let rules = RuleSet::shipped().unwrap();
        for (pattern, _, rule, ..) in CAUSES {
            let rule = rules.rule(rule);
            assert!(rule.is_some_and(|it| it.mode == Mode::Enforce), "{pattern}");
        }
    }

    #[test]
    fn each_level_of_health_features_is_a_set_of_rules() {
        let of = |features: HealthFeatures| RuleSet::parse(&features.rules()).unwrap();
        let is_enforced =
            |features, name: &str| of(features).rule(name).unwrap().mode == Mode::Enforce;
        assert!(!is_enforced(HealthFeatures::Nothing, "ecc_unc_volatile"));
        for (features, history, lemon) in [
            (HealthFeatures::BlockHosts, false, false),
            (HealthFeatures::BlockParts, false, false),
            (HealthFeatures::Attribute, true, false),
            (HealthFeatures::Lemons, true, true),
        ] {
            assert!(is_enforced(features, "ecc_unc_volatile"));
            assert_eq!(is_enforced(features, "history"), history, "{features:?}");
            assert_eq!(is_enforced(features, "lemon"), lemon, "{features:?}");
        }
        let scope = |features| {
            of(features)
                .rule("ecc_unc_volatile")
                .unwrap()
                .block(Severity::Fatal)
        };
        assert_eq!(scope(HealthFeatures::BlockHosts), Scope::Host);
        assert_eq!(scope(HealthFeatures::BlockParts), Scope::Gpu);
    }
}
