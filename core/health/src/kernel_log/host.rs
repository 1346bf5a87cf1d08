//! Kernel log lines about the host: one table of prefixes and words.

use crate::kernel_log::bus::BusId;

/// A line that a rule counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFinding {
    /// Name of the health rule.
    pub rule: &'static str,
    /// Metric of the rule.
    pub metric: &'static str,
    /// Value of the metric.
    pub value: i64,
    /// The device on the PCI bus that it concerns.
    pub bus: Option<BusId>,
}

/// Prefix of a line (any if empty), words that follow in this order, and their meaning.
struct Pattern {
    start: &'static str,
    words: &'static [&'static str],
    rule: &'static str,
    metric: &'static str,
    value: i64,
}

/// Declares patterns: `start, words => rule metric value`.
macro_rules! patterns {
    ($($start:literal $words:expr => $rule:literal $metric:literal $value:literal;)+) => {
        &[$(Pattern {
            start: $start,
            words: &$words,
            rule: $rule,
            metric: $metric,
            value: $value,
        }),+]
    };
}

/// All patterns; the first match applies. Lines into which programs can write names of their choice are
/// matched by their prefixes only.
const PATTERNS: &[Pattern] = patterns! {
    "oom-kill:constraint=CONSTRAINT_NONE" [] => "oom_global" "kills" 1;
    "Kernel panic" [] => "kernel_panic" "panic" 1;
    "BUG: unable to handle" [] => "kernel_panic" "oops" 1;
    "BUG: kernel NULL pointer dereference" [] => "kernel_panic" "oops" 1;
    "divide error:" [] => "kernel_panic" "oops" 1;
    "general protection fault" [] => "kernel_panic" "oops" 1;
    "watchdog: BUG: soft lockup - CPU#" ["stuck for"] => "soft_lockup" "lockups" 1;
    "BUG: soft lockup - CPU#" ["stuck for"] => "soft_lockup" "lockups" 1;
    "EXT4-fs" ["Remounting filesystem read-only"] => "fs_readonly" "readonly" 1;
    "EXT4-fs" ["I/O error while writing superblock"] => "block_io_error" "superblock" 1;
    "XFS" ["hutting down"] => "fs_readonly" "readonly" 1;
    "BTRFS" ["forced readonly"] => "fs_readonly" "readonly" 1;
    "nvme" ["Disabling device after reset failure"] => "nvme" "disabled" 1;
    "block nvme" ["no available path"] => "nvme" "disabled" 1;
    "nvme" ["no available path"] => "nvme" "disabled" 1;
    "nvme" ["timeout", "reset controller"] => "nvme" "timeouts" 1;
    "Buffer I/O error" [] => "block_io_error" "errors" 1;
    "blk_update_request: I/O error" [] => "block_io_error" "errors" 1;
    "I/O error, dev " [] => "block_io_error" "errors" 1;
    "md/raid" ["Disk failure on"] => "raid" "failures" 1;
    "nfs: server " ["not responding"] => "nfs_hang" "unanswered" 1;
    "nfs: server " [" OK"] => "nfs_hang" "unanswered" 0;
    "mlx5_core" ["ACCESS_REG"] => "" "" 0;
    "mlx5_core" ["cause a leak of a command resource"] => "mlx5_fatal" "fatal" 1;
    "mlx5_core" ["health compromised - reached miss count"] => "mlx5_fatal" "fatal" 1;
    "mlx5_core" ["unrecoverable hardware error"] => "mlx5_fatal" "fatal" 1;
    "mlx5_core" ["High Temperature"] => "mlx5_fatal" "warnings" 1;
    "mlx5_core" ["insufficient power"] => "mlx5_fatal" "warnings" 1;
    "NETDEV WATCHDOG:" ["mlx5"] => "mlx5_fatal" "warnings" 1;
    "{" ["[Hardware Error]:", "event severity: fatal"] => "mce_uncorrected" "errors_increase" 1;
    "[Hardware Error]:" ["event severity: fatal"] => "mce_uncorrected" "errors_increase" 1;
    "{" ["[Hardware Error]:", "event severity: recoverable"] => "mce_uncorrected" "recoverable" 1;
    "[Hardware Error]:" ["event severity: recoverable"] => "mce_uncorrected" "recoverable" 1;
    "pcieport" ["AER:", "(Non-Fatal)"] => "pcie_fatal" "nonfatal_increase" 1;
    "pcieport" ["AER:", "(Fatal)"] => "pcie_fatal" "fatal_increase" 1;
    "nvidia-peermem" ["ERROR detected invalid context"] => "peermem" "contexts" 1;
    "nvidia_peermem" ["ERROR detected invalid context"] => "peermem" "contexts" 1;
};

/// Processes without which no task starts or no GPU works.
const VITAL: &[&str] = &[
    "nvidia",
    "nv_",
    "containerd",
    "dockerd",
    "docker",
    "podman",
    "conmon",
    "runc",
    "crun",
    "irq/",
];

/// Parses a line about the host.
pub(super) fn parse(line: &str) -> Option<HostFinding> {
    let line = line.trim();
    if let Some(sign) = hung_task(line).or_else(|| segfault(line)) {
        return Some(sign);
    }
    let matches = |pattern: &&Pattern| {
        let rest = line.strip_prefix(pattern.start);
        rest.is_some_and(|rest| has_in_order(rest, pattern.words))
    };
    let pattern = PATTERNS.iter().find(matches)?;
    let bus = line.rsplit_once("from ").map_or(line, |(_, from)| from);
    let words = bus
        .split([' ', ','])
        .map(|word| word.trim_matches([':', '.']));
    (!pattern.rule.is_empty()).then_some(HostFinding {
        rule: pattern.rule,
        metric: pattern.metric,
        value: pattern.value,
        bus: words
            .filter(|word| word.contains('.'))
            .find_map(BusId::parse),
    })
}

fn has_in_order(line: &str, words: &[&str]) -> bool {
    let mut rest = line;
    words.iter().all(|word| match rest.find(word) {
        Some(at) => {
            rest = &rest[at + word.len()..];
            true
        }
        None => false,
    })
}

/// `INFO: task python:1234 blocked for more than 120 seconds.`
fn hung_task(line: &str) -> Option<HostFinding> {
    let rest = line.strip_prefix("INFO: task ")?;
    let (task, _) = rest.split_once(" blocked for more than ")?;
    let is_vital = VITAL.iter().any(|name| task.starts_with(name));
    Some(sign(
        "hung_task",
        if is_vital {
            "runtime_or_driver"
        } else {
            "tasks"
        },
    ))
}

/// `python[1234]: segfault at 0 ip 00007f sp 00007f error 4 in libnccl.so.2.19[7f+1000]`: the faulting
/// library is the last word.
fn segfault(line: &str) -> Option<HostFinding> {
    let (_, rest) = line.split_once("]: segfault at ")?;
    let (_, library) = rest.rsplit_once(" in ")?;
    library
        .starts_with("libnccl.so")
        .then(|| sign("nccl_segv", "faults"))
}

const fn sign(rule: &'static str, metric: &'static str) -> HostFinding {
    HostFinding {
        rule,
        metric,
        value: 1,
        bus: None,
    }
}
