//! Findings that count against a host, as its worker receives them.

use muster_model::desired::FindingKey;

use super::*;

impl Site {
    /// Rules and components that count against host 1 with its GPUs.
    fn counted(&self) -> Vec<String> {
        let gpus = (8..16).map(GpuUuid);
        let counted = self.health.counted_findings(&self.rules, HostId(1), gpus);
        let one = |key: FindingKey| format!("{} {}", key.rule, name(&key.component));
        counted.into_iter().map(one).collect()
    }
}

#[test]
fn restrictions_suspicions_and_blocks_count_until_a_reading_ends_them() {
    let mut site = Site::new();
    assert_eq!(site.counted(), [""; 0]);
    site.reading("mount_missing", host(1), Severity::Degraded, 1);
    site.reading("check:disk", host(1), Severity::Fatal, 2);
    site.reading("mem_leak", gpu(1, 3), Severity::Degraded, 3);
    site.reading("mem_leak", gpu(2, 3), Severity::Degraded, 4);
    let all = ["check:disk h1", "mem_leak g1.3", "mount_missing h1"];
    assert_eq!(site.counted(), all);
    for (rule, component) in [
        ("mount_missing", host(1)),
        ("check:disk", host(1)),
        ("mem_leak", gpu(1, 3)),
    ] {
        site.reading(rule, component, Severity::Healthy, 5);
    }
    assert_eq!(site.counted(), [""; 0]);
}

/// A rule that only a check clears, and rules that the leader evaluates, are no business of the worker.
#[test]
fn blocks_that_no_reading_ends_do_not_count() {
    let mut site = Site::new();
    site.reading("gpu_lost", gpu(1, 0), Severity::Fatal, 1);
    site.reading("flapping", host(1), Severity::Degraded, 2);
    assert_eq!(site.counted(), [""; 0]);
}
