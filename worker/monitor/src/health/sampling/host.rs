//! Readings of the host itself, from `proc`, `sys` and the data directory's file system.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use muster_model::time::{DAY_MS, HOUR_MS, MonotonicMs};
use rustix::fs::StatVfsMountFlags;

use crate::health::sampling::adapters::Adapters;
use crate::health::sampling::processes::Processes;
use crate::health::{Expected, Sample, THIS_HOST};
use crate::rates::{Rate, WindowedGrowth, permille};
use crate::topology::PciAddress;

/// Names of CPU temperature sensors.
const CPU_SENSORS: [&str; 4] = ["coretemp", "k10temp", "zenpower", "cpu_thermal"];

/// Previous readings of the host.
pub(super) struct HostSensors {
    root: PathBuf,
    data: PathBuf,
    expected: Expected,
    /// PCI device folders of the GPUs when the agent started.
    gpus: Vec<PathBuf>,
    corrected: Rate,
    corrected_lately: WindowedGrowth,
    uncorrected: Rate,
    /// Whether the data directory was read-only at the last reading. The same rule covers other file
    /// systems through the kernel's log, which a writable data directory must not clear.
    was_readonly: bool,
    carriers: BTreeMap<String, Rate>,
    adapters: Adapters,
    processes: Processes,
    sweeps: u64,
}

impl HostSensors {
    pub(super) fn new(
        root: &Path,
        expected: &Expected,
        data: &Path,
        gpus: impl Iterator<Item = PciAddress>,
    ) -> Self {
        let devices = root.join("sys/bus/pci/devices");
        let gpus = gpus.map(|address| devices.join(address.to_string()));
        Self {
            root: root.to_owned(),
            data: data.to_owned(),
            expected: expected.clone(),
            gpus: gpus.filter(|path| path.exists()).collect(),
            corrected: Rate::default(),
            corrected_lately: WindowedGrowth::default(),
            uncorrected: Rate::default(),
            was_readonly: false,
            carriers: BTreeMap::new(),
            adapters: Adapters::new(expected.adapter_gbit_per_s),
            processes: Processes::default(),
            sweeps: 0,
        }
    }

    /// Takes all readings. Values that cannot be read are left out: missing is never healthy.
    pub(super) fn read(&mut self, now: MonotonicMs) -> Vec<Sample> {
        let mut samples = Vec::new();
        samples.extend(self.memory());
        samples.extend(self.memory_in_all());
        samples.extend(self.driver());
        samples.extend(self.disk().unwrap_or_default());
        samples.extend(self.files_and_processes());
        samples.extend(self.gpu_count());
        samples.extend(self.memory_errors(now).into_iter().flatten());
        samples.extend(self.cpu_temperature());
        samples.extend(self.carriers(now));
        samples.extend(self.adapters.read(&self.root, now));
        // Scans every process, so less often.
        if self.sweeps.is_multiple_of(2) {
            let pids_max = self.number("proc/sys/kernel/pid_max");
            samples.extend(self.processes.read(&self.root.join("proc"), pids_max));
        }
        self.sweeps += 1;
        samples
    }

    /// A value of `/proc/meminfo`, in KiB.
    fn memory_kib(&self, name: &str) -> Option<u64> {
        let text = self.text("proc/meminfo")?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()?.parse().ok()
    }

    /// Total memory as a share of the expected amount.
    fn memory_in_all(&self) -> Option<Sample> {
        let expected_kib = self.expected.memory_mib? << 10;
        let share = permille(self.memory_kib("MemTotal:")?, expected_kib);
        Some(of_host("mem_expected", &[("total_permille", share)]))
    }

    /// Whether the loaded driver differs from the expected release.
    fn driver(&self) -> Option<Sample> {
        let expected = self.expected.driver.as_deref()?;
        let loaded = loaded_driver(&self.root)?;
        let differs = i64::from(loaded != expected);
        Some(of_host("driver_version", &[("differs", differs)]))
    }

    fn memory(&self) -> Option<Sample> {
        let total = self.memory_kib("MemTotal:")?;
        let available = self.memory_kib("MemAvailable:")?;
        let available_mib = i64::try_from(available >> 10).ok()?;
        let metrics = [
            ("available_permille", permille(available, total)),
            ("available_mib", available_mib),
        ];
        Some(of_host("mem_available", &metrics))
    }

    fn disk(&mut self) -> Option<Vec<Sample>> {
        let file_system = rustix::fs::statvfs(&self.data).ok()?;
        let bytes = permille(file_system.f_bavail, file_system.f_blocks);
        // Some file systems have no fixed number of inodes.
        let inodes = permille(file_system.f_favail, file_system.f_files);
        let free_mib = file_system.f_bavail.saturating_mul(file_system.f_frsize) >> 20;
        let metrics = [
            ("free_permille", bytes.min(inodes)),
            ("free_mib", i64::try_from(free_mib).unwrap_or(i64::MAX)),
        ];
        let mut samples = vec![of_host("disk_free", &metrics)];
        let is_readonly = file_system.f_flag.contains(StatVfsMountFlags::RDONLY);
        if is_readonly || self.was_readonly {
            let metrics = [("readonly", i64::from(is_readonly))];
            samples.push(of_host("fs_readonly", &metrics));
        }
        self.was_readonly = is_readonly;
        Some(samples)
    }

    fn files_and_processes(&self) -> Option<Sample> {
        let text = self.text("proc/sys/fs/file-nr")?;
        let mut files = text.split_whitespace().map(str::parse::<u64>);
        let (open, _, open_max) = (files.next()?.ok()?, files.next(), files.next()?.ok()?);
        let load = self.text("proc/loadavg")?;
        let tasks = load.split_whitespace().nth(3)?.split_once('/')?.1;
        let pids_max = self.number("proc/sys/kernel/pid_max")?;
        let used = permille(open, open_max).max(permille(tasks.parse().ok()?, pids_max));
        Some(of_host("fds_pids", &[("used_permille", used)]))
    }

    fn gpu_count(&self) -> Option<Sample> {
        if self.gpus.is_empty() {
            return None;
        }
        let count = self.gpus.iter().filter(|path| !path.exists()).count();
        let missing = i64::try_from(count).unwrap_or(i64::MAX);
        Some(of_host("gpu_count", &[("missing", missing)]))
    }

    /// Memory errors counted by the host's memory controllers (EDAC).
    fn memory_errors(&mut self, now: MonotonicMs) -> Option<[Sample; 2]> {
        let controllers = entries(&self.root.join("sys/devices/system/edac/mc"), "mc");
        let total = |file: &str| -> Option<u64> {
            let counts = controllers
                .iter()
                .filter_map(|path| number(&path.join(file)));
            (!controllers.is_empty()).then(|| counts.sum())
        };
        let (corrected, uncorrected) = (total("ce_count")?, total("ue_count")?);
        let uncorrected = self.uncorrected.grow(now, uncorrected);
        if let Some(growth) = self.corrected.grow(now, corrected) {
            self.corrected_lately.add(now, growth.increase);
        }
        let metrics = [
            ("errors_per_day", self.corrected_lately.within(now, DAY_MS)),
            (
                "errors_per_hour",
                self.corrected_lately.within(now, HOUR_MS),
            ),
        ];
        let increase = uncorrected.map_or(0, |growth| growth.increase);
        Some([
            of_host("mce_corrected", &metrics),
            of_host("mce_uncorrected", &[("errors_increase", increase)]),
        ])
    }

    fn cpu_temperature(&self) -> Option<Sample> {
        let (mut sum, mut sum_max, mut critical) = (0, 0, 0);
        for sensor in entries(&self.root.join("sys/class/hwmon"), "hwmon") {
            let name = fs::read_to_string(sensor.join("name")).unwrap_or_default();
            if !CPU_SENSORS.contains(&name.trim()) {
                continue;
            }
            for input in entries(&sensor, "temp") {
                let Some(of) = input.to_str().and_then(|path| path.strip_suffix("_input")) else {
                    continue;
                };
                let limit = |kind: &str| number(Path::new(&format!("{of}_{kind}")));
                let Some(read) = number(&input) else { continue };
                if let Some(max) = limit("max") {
                    sum += read;
                    sum_max += max;
                }
                critical += i64::from(limit("crit").is_some_and(|limit| read >= limit));
            }
        }
        let warning = i64::from(sum >= sum_max);
        let metrics = [("warning", warning), ("critical", critical)];
        (sum_max > 0).then(|| of_host("cpu_temp", &metrics))
    }

    /// Highest rate of carrier changes of the physical network devices.
    fn carriers(&mut self, now: MonotonicMs) -> Option<Sample> {
        let mut worst = None;
        for device in entries(&self.root.join("sys/class/net"), "") {
            let (Some(name), true) = (device.file_name(), device.join("device").exists()) else {
                continue;
            };
            let Some(changes) = number(&device.join("carrier_changes")) else {
                continue;
            };
            let name = name.to_string_lossy().into_owned();
            let growth = self.carriers.entry(name).or_default().grow(now, changes);
            worst = worst.max(growth.map(|growth| growth.per_minute()));
        }
        worst.map(|worst| of_host("eth_mgmt", &[("carrier_changes_per_minute", worst)]))
    }

    fn text(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path)).ok()
    }

    fn number(&self, path: &str) -> Option<u64> {
        number(&self.root.join(path))
    }
}

fn of_host(rule: &str, metrics: &[(&str, i64)]) -> Sample {
    Sample::new(rule, THIS_HOST, metrics)
}

/// The number in a file of `proc` or `sys`.
pub(super) fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Entries of a folder whose names begin with `start`, sorted; empty if the folder is missing.
pub(super) fn entries(folder: &Path, start: &str) -> Vec<PathBuf> {
    let Ok(found) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let names = found.filter_map(|entry| Some(entry.ok()?.path()));
    let begins = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().starts_with(start)
    };
    let mut found: Vec<PathBuf> = names.filter(begins).collect();
    found.sort();
    found
}

/// Release of the loaded GPU driver; none without one.
pub fn loaded_driver(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join("proc/driver/nvidia/version")).ok()?;
    let is_release = |word: &&str| {
        let is_part = |letter: char| letter.is_ascii_digit() || letter == '.';
        word.contains('.') && word.chars().all(is_part)
    };
    let mut words = text.lines().next()?.split_whitespace();
    words.find(is_release).map(str::to_owned)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    /// The value of a metric, if it was read.
    fn read(samples: &[Sample], rule: &str, metric: &str) -> Option<i64> {
        let sample = samples.iter().find(|sample| sample.rule == rule)?;
        let found = sample.metrics.iter().find(|(name, _)| name == metric)?;
        Some(found.1)
    }

    #[test]
    fn a_host_is_read_from_its_files() {
        let home = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = home.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "proc/meminfo",
            "MemTotal:  4096000 kB\nMemAvailable:  40960 kB\n",
        );
        write("proc/sys/fs/file-nr", "900\t0\t1000\n");
        write("proc/loadavg", "1.0 1.0 1.0 3/100 77\n");
        write(
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build\n",
        );
        write("proc/sys/kernel/pid_max", "1000\n");
        write("sys/devices/system/edac/mc/mc0/ce_count", "5\n");
        write("sys/devices/system/edac/mc/mc0/ue_count", "0\n");
        write("sys/class/hwmon/hwmon0/name", "coretemp\n");
        write("sys/class/hwmon/hwmon0/temp1_input", "90000\n");
        write("sys/class/hwmon/hwmon0/temp1_max", "80000\n");
        write("sys/class/hwmon/hwmon0/temp1_crit", "100000\n");
        write("sys/class/net/eth0/device/x", "");
        write("sys/class/net/eth0/carrier_changes", "2\n");
        write("sys/bus/pci/devices/0000:0f:00.0/x", "");
        let gpu = ["0000:0f:00.0", "0000:ff:00.0"].map(|address| address.parse().unwrap());
        let expected = Expected {
            driver: Some("580.65.06".to_owned()),
            memory_mib: Some(8_000),
            adapter_gbit_per_s: None,
        };
        let root = home.path();
        let mut sensors = HostSensors::new(root, &expected, root, gpu.into_iter());
        let first = sensors.read(MonotonicMs(1_000));
        let of = |rule, metric| read(&first, rule, metric);
        assert_eq!(of("mem_available", "available_permille"), Some(10));
        assert_eq!(of("mem_available", "available_mib"), Some(40));
        assert_eq!(of("mem_expected", "total_permille"), Some(500));
        assert_eq!(of("driver_version", "differs"), Some(0));
        assert_eq!(of("fds_pids", "used_permille"), Some(900));
        assert_eq!(of("gpu_count", "missing"), Some(0));
        assert_eq!(of("cpu_temp", "warning"), Some(1));
        assert_eq!(of("cpu_temp", "critical"), Some(0));
        assert_eq!(of("mce_corrected", "errors_per_hour"), Some(0));
        assert_eq!(of("fs_readonly", "readonly"), None);
        assert!(of("disk_free", "free_mib").is_some());
        write("sys/devices/system/edac/mc/mc0/ce_count", "105\n");
        write("sys/devices/system/edac/mc/mc0/ue_count", "1\n");
        write("sys/class/net/eth0/carrier_changes", "5\n");
        let older = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19\n";
        write("proc/driver/nvidia/version", older);
        fs::remove_dir_all(home.path().join("sys/bus/pci")).unwrap();
        let second = sensors.read(MonotonicMs(61_000));
        let of = |rule, metric| read(&second, rule, metric);
        assert_eq!(of("mce_corrected", "errors_per_day"), Some(100));
        assert_eq!(of("mce_uncorrected", "errors_increase"), Some(1));
        assert_eq!(of("eth_mgmt", "carrier_changes_per_minute"), Some(3));
        assert_eq!(of("gpu_count", "missing"), Some(1));
        assert_eq!(of("driver_version", "differs"), Some(1));
    }

    #[test]
    fn missing_files_give_no_readings() {
        let home = tempfile::tempdir().unwrap();
        let nothing = Expected::default();
        let root = home.path();
        let mut sensors = HostSensors::new(root, &nothing, root, std::iter::empty());
        let rules: Vec<String> = sensors
            .read(MonotonicMs(1))
            .into_iter()
            .map(|sample| sample.rule)
            .collect();
        assert_eq!(rules, ["disk_free"]);
    }
}
