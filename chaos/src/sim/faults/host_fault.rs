//! Faults of a host or one of its adapters as sensor readings, also injected by `muster chaos inject
//! reading` into a cluster of processes.

use muster_model::health::Component;
use muster_model::ids::HostId;
use serde::{Deserialize, Serialize};

/// This host, before its number in the cluster is known, as real workers name it.
pub const THIS_HOST: Component = Component::Host(HostId(0));

/// Values of metrics.
type Metrics = &'static [(&'static str, i64)];

/// A fault of a host or an adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostFault {
    /// A disk refuses writes: no new placements.
    DiskFull,
    /// A file system is read-only: reboot.
    ReadOnly,
    /// A shared file system is not mounted: drain and check.
    MountGone,
    /// A shared file system does not answer: no new placements, and a drain if it persists.
    MountHangs,
    /// Less memory than expected: an operator investigates.
    MemoryShort,
    /// The driver has an unexpected version: no gangs.
    DriverDiffers,
    /// The driver does not answer: reboot.
    DriverHangs,
    /// The driver does not start: reboot.
    DriverDoesNotStart,
    /// The driver does not match its library: drain and reboot.
    LibraryDiffers,
    /// Processors are too hot: drain and check.
    Hot,
    /// The clock is wrong: no new placements if it persists.
    ClockOff,
    /// Power supplies throttle the GPUs: on many hosts, a fault of their rack.
    PowerBraked,
    /// The container engine has failed: no new placements.
    EngineFailed,
    /// The fabric manager is not running: no gangs, and a restart of it if it persists.
    FabricManagerGone,
    /// The kernel reported an oops: check when the host is idle.
    Oops,
    /// The kernel panicked: reboot.
    Panic,
    /// A task of the driver hangs in the kernel: reboot.
    DriverTaskHung,
    /// A disk lost its superblock: drain and check.
    SuperblockLost,
    /// Uncorrectable memory errors: a case for the vendor.
    MemoryErrors,
    /// A disk of a RAID group failed: an operator investigates.
    RaidFailed,
    /// The board's own log has a critical entry: an operator investigates.
    BoardCritical,
    /// A port is down: no gangs, and an operator investigates if it persists.
    PortDown,
    /// A port's link has errors: drain and check of its host.
    PortNoisy,
    /// A link went down briefly: drain and check of its host.
    LinkLost,
    /// An adapter's firmware failed: an operator investigates.
    AdapterDied,
}

/// Readings of a fault.
#[derive(Clone, Copy, Debug)]
pub struct FaultReadings {
    /// The rule that detects it.
    pub rule: &'static str,
    /// Readings while the fault is present.
    pub faulty: Metrics,
    /// Readings without the fault; empty for one-time events.
    pub healthy: Metrics,
    /// Whether it is a fault of an adapter and not of the host itself.
    pub is_adapters: bool,
}

impl HostFault {
    /// All faults.
    pub const ALL: [Self; 25] = [
        Self::DiskFull,
        Self::ReadOnly,
        Self::MountGone,
        Self::MountHangs,
        Self::MemoryShort,
        Self::DriverDiffers,
        Self::DriverHangs,
        Self::DriverDoesNotStart,
        Self::LibraryDiffers,
        Self::Hot,
        Self::ClockOff,
        Self::PowerBraked,
        Self::EngineFailed,
        Self::FabricManagerGone,
        Self::Oops,
        Self::Panic,
        Self::DriverTaskHung,
        Self::SuperblockLost,
        Self::MemoryErrors,
        Self::RaidFailed,
        Self::BoardCritical,
        Self::PortDown,
        Self::PortNoisy,
        Self::LinkLost,
        Self::AdapterDied,
    ];

    /// Readings of the fault.
    #[must_use]
    pub const fn readings(self) -> FaultReadings {
        READINGS[self as usize]
    }

    /// The faulty component of a host; ports count from 0.
    #[must_use]
    pub fn component(self, port: u32) -> Component {
        if !self.readings().is_adapters {
            return THIS_HOST;
        }
        Component::Nic {
            host: HostId(0),
            name: format!("mlx5_{port}/1"),
        }
    }
}

/// Readings of each fault, in their order, by the metrics of the shipped rules.
const READINGS: [FaultReadings; 25] = [
    level(
        "disk_free",
        &[("refused", 1)],
        &[("refused", 0), ("free_permille", 500)],
    ),
    level("fs_readonly", &[("readonly", 1)], &[("readonly", 0)]),
    level("mount_missing", &[("missing", 1), ("timeouts", 0)], MOUNTED),
    level("mount_missing", &[("missing", 0), ("timeouts", 1)], MOUNTED),
    level(
        "mem_expected",
        &[("total_permille", 900)],
        &[("total_permille", 1_000)],
    ),
    level("driver_version", &[("differs", 1)], &[("differs", 0)]),
    level(
        "nvml_latency",
        &[("sweep_ms", 0), ("unfinished_s", 120)],
        &[("sweep_ms", 40), ("unfinished_s", 0)],
    ),
    level("nvml_init", &[("failures", 1)], &[("failures", 0)]),
    level(
        "driver_lib_mismatch",
        &[("mismatch", 1)],
        &[("mismatch", 0)],
    ),
    level(
        "cpu_temp",
        &[("warning", 1), ("critical", 1)],
        &[("warning", 0), ("critical", 0)],
    ),
    level("clock_skew", &[("offset_ms", 10_000)], &[("offset_ms", 1)]),
    level("power_brake", &[("braked", 1)], &[("braked", 0)]),
    level("runtime", &[("failed", 1)], &[("failed", 0)]),
    level(
        "fabric_manager",
        &[("inactive", 1), ("restarting", 0)],
        &[("inactive", 0), ("restarting", 0)],
    ),
    event("kernel_panic", &[("oops", 1)]),
    event("kernel_panic", &[("panic", 1)]),
    event("hung_task", &[("runtime_or_driver", 1)]),
    event("block_io_error", &[("superblock", 1)]),
    event("mce_uncorrected", &[("errors_increase", 1)]),
    event("raid", &[("failures", 1)]),
    event("ipmi_sel", &[("critical", 1)]),
    of_adapter(level(
        "ib_state",
        &[("down", 1), ("short_of_profile", 0)],
        &[("down", 0), ("short_of_profile", 0)],
    )),
    of_adapter(level(
        "ib_symbol",
        &[("per_second", 0), ("per_hour", 200)],
        &[("per_second", 0), ("per_hour", 0)],
    )),
    of_adapter(event("ib_counters", &[("link_downed_increase", 1)])),
    of_adapter(event("mlx5_fatal", &[("fatal", 1)])),
];

/// A mounted shared file system.
const MOUNTED: Metrics = &[("missing", 0), ("timeouts", 0)];

const fn level(rule: &'static str, faulty: Metrics, healthy: Metrics) -> FaultReadings {
    FaultReadings {
        rule,
        faulty,
        healthy,
        is_adapters: false,
    }
}

const fn event(rule: &'static str, faulty: Metrics) -> FaultReadings {
    level(rule, faulty, &[])
}

const fn of_adapter(readings: FaultReadings) -> FaultReadings {
    FaultReadings {
        is_adapters: true,
        ..readings
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_health::rules::RuleSet;
    use muster_model::health::ComponentKind;

    use super::*;

    /// A fault that no shipped rule detects would have no effect.
    #[test]
    fn every_fault_is_detected_by_a_shipped_rule() {
        let rules = RuleSet::shipped().unwrap();
        for fault in HostFault::ALL {
            let readings = fault.readings();
            let rule = rules.rule(readings.rule).unwrap();
            let is_nics = rule.component == ComponentKind::Nic;
            assert_eq!(is_nics, readings.is_adapters, "{fault:?}");
            let bad = rule.degraded.when.iter().chain(&rule.fatal.when);
            let is_met = bad.clone().any(|it| {
                let read = readings
                    .faulty
                    .iter()
                    .find(|(metric, _)| *metric == it.metric);
                read.is_some_and(|(_, value)| it.operator.holds(*value, it.value))
            });
            assert!(is_met, "{fault:?}");
            let is_over = { bad.chain(&rule.healthy) }.all(|it| {
                let read = readings
                    .healthy
                    .iter()
                    .find(|(metric, _)| *metric == it.metric);
                let is_bad = !rule.healthy.contains(it);
                read.is_none_or(|(_, value)| it.operator.holds(*value, it.value) != is_bad)
            });
            assert!(is_over, "{fault:?}");
        }
    }
}
