//! Resource limits of a task's cgroups.

use std::io;

use muster_model::desired::TaskAssignment;
use serde::{Deserialize, Serialize};

use crate::isolation::cgroup::{Cgroups, devices};
use crate::task::spec::{AssignedCpus, TaskSpec};

/// CPU quota period in microseconds: the kernel's default.
const CPU_PERIOD_MICROS: u64 = 100_000;
/// Smallest CPU quota that the kernel accepts, in microseconds.
const CPU_QUOTA_MICROS_MIN: u64 = 1_000;
/// Version 1 shares that equal one whole CPU, by the kernel's convention.
const CPU_SHARES: u64 = 1_024;
/// Smallest and largest share that version 1 accepts.
const CPU_SHARES_RANGE: (u64, u64) = (2, 262_144);
/// Largest weight that version 2 accepts; the smallest is 1.
const CPU_WEIGHT_MAX: u64 = 10_000;

/// A device number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct DeviceNumber {
    /// Number of the driver.
    pub major: u32,
    /// Number of the device within its driver.
    pub minor: u32,
}

/// A task's share of CPU time in version 1 units, which container engines use too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuTime {
    /// Relative share while CPUs are contended.
    pub(crate) shares: u64,
    /// Upper bound that also applies while CPUs are idle.
    pub(crate) quota: Option<CpuQuota>,
}

/// CPU time that a task may use per period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CpuQuota {
    /// CPU time in microseconds.
    pub(crate) micros: u64,
    /// Period in microseconds.
    pub(crate) period: u64,
}

impl CpuTime {
    /// Converts thousandths of CPUs, `is_held` to a quota or not; `None` for 0.
    pub(crate) fn of(cpus_milli: u32, is_held: bool) -> Option<Self> {
        (cpus_milli > 0).then(|| Self {
            shares: shares(cpus_milli),
            quota: is_held.then(|| CpuQuota {
                micros: quota_micros(cpus_milli),
                period: CPU_PERIOD_MICROS,
            }),
        })
    }
}

/// Limits that cgroups enforce for a task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Memory in MiB; 0 for no limit.
    memory_mib: u64,
    /// CPU weight in thousandths of CPUs; 0 for none.
    cpus_milli: u32,
    /// Whether the CPU amount is also an upper bound while CPUs are idle.
    cpu_quota: bool,
    /// Maximum number of processes and threads.
    pids_max: Option<u32>,
    /// Whether a container engine enforces these limits as well.
    has_engine: bool,
    /// CPUs that the task is bound to.
    cpuset: Option<AssignedCpus>,
    /// Devices that the task may not open.
    devices_denied: Vec<DeviceNumber>,
}

impl Limits {
    /// Derives the limits from a task's resources.
    pub(crate) fn of(spec: &TaskSpec) -> Self {
        let TaskAssignment {
            memory_mib,
            cpus_milli,
            ..
        } = spec.assignment;
        Self {
            memory_mib,
            cpus_milli,
            cpu_quota: spec.confinement.cpu_quota,
            pids_max: spec.assignment.execution.pids_max,
            has_engine: spec.assignment.execution.container.is_some(),
            cpuset: spec.confinement.cpus.clone(),
            devices_denied: spec.confinement.devices_denied.clone(),
        }
    }

    /// Whether the number of processes is limited.
    pub(crate) const fn limit_processes(&self) -> bool {
        self.pids_max.is_some()
    }

    /// Memory limit in bytes; `None` if there is none.
    pub(crate) const fn memory_bytes(&self) -> Option<u64> {
        match self.memory_mib {
            0 => None,
            mib => Some(mib.saturating_mul(1 << 20)),
        }
    }

    /// Whether only memory and CPU time are limited, which version 1 implements by files that can be
    /// rewritten.
    pub(super) fn are_simple(&self) -> bool {
        self.pids_max.is_none() && self.cpuset.is_none() && self.devices_denied.is_empty()
    }

    /// Applies the limits.
    pub(super) fn set(&self, cgroups: &Cgroups) -> Result<(), String> {
        self.memory(cgroups).map_err(|error| {
            format!(
                "setting the memory limit of {} MiB failed: {error}",
                self.memory_mib
            )
        })?;
        self.cpus(cgroups)
            .map_err(|error| format!("setting the CPU share failed: {error}"))?;
        self.processes(cgroups)?;
        self.cpuset(cgroups)
            .map_err(|error| format!("binding to CPUs failed: {error}"))?;
        self.devices(cgroups)
            .map_err(|error| format!("denying access to other GPUs failed: {error}"))
    }

    /// Swap is limited too, so that it does not extend the memory limit.
    fn memory(&self, cgroups: &Cgroups) -> io::Result<()> {
        if self.memory_mib == 0 {
            return Ok(());
        }
        let bytes = self.memory_bytes().unwrap_or_default().to_string();
        let both = [("memory.max", &*bytes), ("memory.limit_in_bytes", &*bytes)];
        match cgroups.write_either(&both)? {
            Some(0) => cgroups.write("memory.swap.max", "0").map(drop),
            Some(_) => cgroups
                .write("memory.memsw.limit_in_bytes", &bytes)
                .map(drop),
            None => Ok(()),
        }
    }

    fn cpus(&self, cgroups: &Cgroups) -> io::Result<()> {
        let Some(CpuTime { shares, quota }) = CpuTime::of(self.cpus_milli, self.cpu_quota) else {
            return Ok(());
        };
        let (weight, shares) = (weight(shares).to_string(), shares.to_string());
        cgroups.write_either(&[("cpu.weight", &weight), ("cpu.shares", &shares)])?;
        if let Some(CpuQuota { micros, period }) = quota
            && !cgroups.write("cpu.max", &format!("{micros} {period}"))?
        {
            cgroups.write("cpu.cfs_period_us", &period.to_string())?;
            cgroups.write("cpu.cfs_quota_us", &micros.to_string())?;
        }
        Ok(())
    }

    fn processes(&self, cgroups: &Cgroups) -> Result<(), String> {
        let Some(max) = self.pids_max else {
            return Ok(());
        };
        match cgroups.write("pids.max", &max.to_string()) {
            Ok(is_set) if is_set || self.has_engine => Ok(()),
            Ok(_) => Err(format!(
                "setting the process limit of {max} failed: no usable cgroup controller `pids` on this host"
            )),
            Err(error) => Err(format!(
                "setting the process limit of {max} failed: {error}"
            )),
        }
    }

    fn cpuset(&self, cgroups: &Cgroups) -> io::Result<()> {
        let Some(AssignedCpus { cpus, .. }) = &self.cpuset else {
            return Ok(());
        };
        cgroups.write("cpuset.cpus", &list(cpus))?;
        // Remote memory is slower but better than none: local nodes are only preferred, later.
        cgroups.inherit("cpuset.mems")
    }

    fn devices(&self, cgroups: &Cgroups) -> io::Result<()> {
        let mut is_set = true;
        for DeviceNumber { major, minor } in &self.devices_denied {
            is_set &= cgroups.write("devices.deny", &format!("c {major}:{minor} rwm"))?;
        }
        match cgroups.unified().filter(|_| !is_set) {
            Some(unified) if devices::is_available() => {
                devices::deny(unified, &self.devices_denied)
            }
            _ => Ok(()),
        }
    }
}

/// Formats numbers as the kernel lists them.
fn list(numbers: &[u32]) -> String {
    let texts: Vec<String> = numbers.iter().map(u32::to_string).collect();
    texts.join(",")
}

/// CPU time per period, in microseconds, for thousandths of CPUs.
fn quota_micros(cpus_milli: u32) -> u64 {
    let quota = u64::from(cpus_milli) * CPU_PERIOD_MICROS / 1_000;
    quota.max(CPU_QUOTA_MICROS_MIN)
}

fn shares(cpus_milli: u32) -> u64 {
    let (least, greatest) = CPU_SHARES_RANGE;
    (u64::from(cpus_milli) * CPU_SHARES / 1_000).clamp(least, greatest)
}

/// Converts a version 1 share to a version 2 weight: scales mapped end to end, as systemd and the container
/// runtimes do.
const fn weight(shares: u64) -> u64 {
    let (least, greatest) = CPU_SHARES_RANGE;
    1 + (shares - least) * (CPU_WEIGHT_MAX - 1) / (greatest - least)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use std::fs;

    use super::*;

    /// Limits of all kinds.
    fn all_limits() -> Limits {
        Limits {
            memory_mib: 64,
            cpus_milli: 1_500,
            cpu_quota: true,
            pids_max: Some(7),
            has_engine: false,
            cpuset: Some(AssignedCpus {
                cpus: vec![0, 2],
                nodes: vec![1],
            }),
            devices_denied: Vec::new(),
        }
    }

    /// Returns the contents of a fake cgroup's files after the limits were set; its parent has `nodes_above`.
    fn written(files: &[&str], nodes_above: &str) -> Vec<String> {
        let home = tempfile::tempdir().unwrap();
        let cgroup = home.path().join("task");
        fs::create_dir(&cgroup).unwrap();
        fs::write(home.path().join("cpuset.mems"), nodes_above).unwrap();
        for file in files {
            fs::write(cgroup.join(file), "").unwrap();
        }
        all_limits()
            .set(&Cgroups::at(std::slice::from_ref(&cgroup)))
            .unwrap();
        let read = |file: &&str| fs::read_to_string(cgroup.join(file)).unwrap();
        files.iter().map(read).collect()
    }

    #[test]
    fn all_limits_are_written_to_cgroups_of_both_versions() {
        let unified = [
            "memory.max",
            "memory.swap.max",
            "cpu.weight",
            "cpu.max",
            "pids.max",
            "cpuset.cpus",
            "cpuset.mems",
        ];
        assert_eq!(
            written(&unified, "\n"),
            ["67108864", "0", "59", "150000 100000", "7", "0,2", ""]
        );
        let legacy = [
            "memory.limit_in_bytes",
            "memory.memsw.limit_in_bytes",
            "cpu.shares",
            "cpu.cfs_period_us",
            "cpu.cfs_quota_us",
            "pids.max",
            "cpuset.cpus",
            "cpuset.mems",
        ];
        assert_eq!(
            written(&legacy, "0-1\n"),
            [
                "67108864", "67108864", "1536", "100000", "150000", "7", "0,2", "0-1"
            ]
        );
    }

    #[test]
    fn a_process_limit_that_cannot_be_enforced_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let cgroups = Cgroups::at(&[home.path().to_owned()]);
        let error = all_limits().set(&cgroups).unwrap_err();
        assert!(
            error.contains("no usable cgroup controller `pids`"),
            "{error}"
        );
        let by_engine = Limits {
            has_engine: true,
            ..all_limits()
        };
        assert_eq!(by_engine.set(&cgroups), Ok(()));
    }

    #[test]
    fn cpus_become_shares_and_weights_within_the_kernels_ranges() {
        let both = |cpus_milli| (shares(cpus_milli), weight(shares(cpus_milli)));
        assert_eq!(both(1), (2, 1));
        assert_eq!(both(1_000), (1_024, 39));
        assert_eq!(both(128_000), (131_072, 5_000));
        assert_eq!(both(u32::MAX), (262_144, 10_000));
    }

    #[test]
    fn a_quota_is_never_less_than_the_kernel_takes() {
        assert_eq!(
            [1, 5, 10, 11].map(quota_micros),
            [1_000, 1_000, 1_000, 1_100]
        );
        assert_eq!(quota_micros(2_500), 250_000);
    }
}
