//! Settings for the health of a host and its GPUs.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use muster_health::checks::Dialect;
use muster_health::kernel_log::TrustedWriters;
use muster_service::settings::BrokenRule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits::{
    HEALTH_CHECK_NAME_BYTES_MAX, HEALTH_CHECKS_MAX, HEALTH_EXPECTED_GBIT_PER_S_MAX,
    HEALTH_EXPECTED_MEMORY_MIB_MAX, HEALTH_MOUNTS_MAX, HEALTH_RESTART_UNITS_MAX, HEALTH_SAMPLE_MS,
};

/// Path of the kernel's log.
const KERNEL_LOG: &str = "/dev/kmsg";
/// Unit that may be restarted by default: it holds no state of tasks, and no task runs in it.
const FABRIC_MANAGER: &str = "nvidia-fabricmanager.service";
/// Setting that disables the kernel log and the reading of the host.
const OFF: &str = "off";

/// Settings for the health of a host and its GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct HealthConfig {
    /// The kernel's log; `off` disables it. Of `/dev/kmsg` only records of the kernel itself count. Another
    /// path is a file or pipe with records of the same format, for tests: its records are trusted
    /// regardless of their writer.
    pub kernel_log: PathBuf,
    /// Folder with `proc` and `sys` of the host; `off` if the host is simulated on a shared machine, as by
    /// `muster dev`: its memory, disks and adapters are then not monitored.
    pub host_root: PathBuf,
    /// Interval between readings of GPUs and of the host, in milliseconds.
    pub sample_ms: u64,
    /// Whether the GPUs' gauges are exported under the names of NVIDIA's DCGM exporter; turn off where that
    /// exporter runs too.
    pub gpu_gauges: bool,
    /// Folder in which NVIDIA's exporter looks up the job of each GPU (`DCGM_HPC_JOB_MAPPING_DIR`); if not
    /// set, nothing is written.
    pub job_mapping: Option<PathBuf>,
    /// Expected properties of this host; those not set are not checked.
    pub expected: Expected,
    /// Shared file systems that jobs need: monitored for being mounted and answering.
    pub mounts: Vec<PathBuf>,
    /// The site's own checks.
    pub checks: Vec<SiteCheck>,
    /// A program that checks a GPU before it is used again, in addition to the built-in checks; `{gpu}` is
    /// its index, `{uuid}` its UUID, `{peers}` the UUIDs of the other GPUs that are checked with it,
    /// separated by commas. Empty: the program that ships with Muster, if it is installed beside the agent
    /// and the GPUs are real. `off`: none.
    pub active_check: Vec<String>,
    /// The program that lists the newest records of the board's event log, oldest first, as
    /// `ipmitool sel list` and FreeIPMI's `ipmi-sel` do. Empty: whichever of these is installed. `off`:
    /// none.
    pub board_log: Vec<String>,
    /// The program that resets a GPU on which nothing runs.
    pub reset_command: Vec<String>,
    /// The program that reboots the host; if not set, hosts are never rebooted.
    pub reboot_command: Vec<String>,
    /// The program that restarts a service; `{unit}` is its unit.
    pub restart_command: Vec<String>,
    /// Units that may be restarted if they fail and a rule covers them; others are never restarted.
    pub restart_units: Vec<String>,
}

impl Default for HealthConfig {
    fn default() -> Self {
        let reset = ["nvidia-smi", "--gpu-reset", "-i", "{uuid}"];
        Self {
            kernel_log: PathBuf::from(KERNEL_LOG),
            host_root: PathBuf::from("/"),
            sample_ms: HEALTH_SAMPLE_MS,
            gpu_gauges: true,
            job_mapping: None,
            expected: Expected::default(),
            mounts: Vec::new(),
            checks: Vec::new(),
            active_check: Vec::new(),
            board_log: Vec::new(),
            reset_command: reset.map(str::to_owned).to_vec(),
            reboot_command: Vec::new(),
            restart_command: ["systemctl", "restart", "{unit}"]
                .map(str::to_owned)
                .to_vec(),
            restart_units: vec![FABRIC_MANAGER.to_owned()],
        }
    }
}

/// Expected properties of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Expected {
    /// Release of NVIDIA's driver (`580.65.06`).
    pub driver: Option<String>,
    /// Memory of the host in MiB, as its kernel counts it (`MemTotal`).
    pub memory_mib: Option<u64>,
    /// Speed of each InfiniBand port in Gbit/s.
    pub adapter_gbit_per_s: Option<u64>,
}

/// A check defined by the site.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SiteCheck {
    /// Its name: findings are reported under the rule `check:NAME`.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Seconds between runs.
    pub period_s: u64,
    /// Seconds after which the check is killed with all its processes; a check that hangs counts as failed.
    pub timeout_s: u64,
    /// Convention of its exit codes.
    #[serde(default)]
    pub dialect: CheckConvention,
}

/// Conventions for the exit codes of checks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckConvention {
    /// 0 is healthy, 1 a warning, 2 critical, anything else unknown.
    #[default]
    Nagios,
    /// LBNL's Node Health Check: 0 is healthy, anything else is not; a line with `ERROR` gives the reason.
    Nhc,
    /// Slurm's `HealthCheckProgram`: as Node Health Check.
    Slurm,
}

impl From<CheckConvention> for Dialect {
    fn from(dialect: CheckConvention) -> Self {
        match dialect {
            CheckConvention::Nagios => Self::Nagios,
            CheckConvention::Nhc | CheckConvention::Slurm => Self::NodeHealthCheck,
        }
    }
}

impl HealthConfig {
    /// The log to read and the writers to trust; none if it is off.
    pub(crate) fn log(&self) -> Option<(&Path, TrustedWriters)> {
        if self.kernel_log == Path::new(OFF) {
            return None;
        }
        let trust = if self.kernel_log == Path::new(KERNEL_LOG) {
            TrustedWriters::Kernel
        } else {
            TrustedWriters::Tests
        };
        Some((&self.kernel_log, trust))
    }

    /// The folder from which the host is read; none if it is not monitored.
    #[must_use]
    pub fn host(&self) -> Option<&Path> {
        Some(&*self.host_root).filter(|root| *root != Path::new(OFF))
    }

    /// Settings of a simulated host: neither the machine's log nor the machine itself is monitored, since
    /// several hosts share it.
    #[must_use]
    pub fn of_a_simulated_host() -> Self {
        Self {
            kernel_log: OFF.into(),
            host_root: OFF.into(),
            ..Self::default()
        }
    }

    /// The first setting that needs monitoring of a host that is not monitored.
    fn unmonitored_setting(&self) -> Option<&'static str> {
        let is_asked_for = [
            ("mounts", !self.mounts.is_empty()),
            ("expected", self.expected != Expected::default()),
        ];
        let mut fields = is_asked_for.into_iter().filter(|(_, is_set)| *is_set);
        fields
            .next()
            .filter(|_| self.host().is_none())
            .map(|(field, _)| field)
    }

    /// The first broken rule of the settings.
    #[must_use]
    pub fn broken_rule(&self) -> Option<BrokenRule> {
        let is_place = |path: &Path| path == Path::new(OFF) || path.is_absolute();
        let rules = [
            (
                is_place(&self.kernel_log),
                "kernel_log",
                "must be `off` or an absolute path",
            ),
            (
                is_place(&self.host_root),
                "host_root",
                "must be `off` or an absolute path",
            ),
            (
                self.job_mapping.iter().all(|path| path.is_absolute()),
                "job_mapping",
                "must be an absolute path",
            ),
            (self.sample_ms > 0, "sample_ms", "must be at least 1"),
            (
                self.mounts.iter().all(|path| path.is_absolute()),
                "mounts",
                "must be absolute paths",
            ),
        ];
        if let Some((_, field, rule)) = rules.iter().find(|(holds, _, _)| !holds) {
            return broken(field, *rule);
        }
        if let Some(field) = self.unmonitored_setting() {
            return broken(field, "cannot be monitored where `host_root` is `off`");
        }
        if let Some(rule) = self.expected.broken_rule() {
            return Some(rule);
        }
        if self.mounts.len() > HEALTH_MOUNTS_MAX {
            return broken(
                "mounts",
                format!("has more than {HEALTH_MOUNTS_MAX} (HEALTH_MOUNTS_MAX)"),
            );
        }
        if self.restart_units.len() > HEALTH_RESTART_UNITS_MAX {
            return broken(
                "restart_units",
                format!("has more than {HEALTH_RESTART_UNITS_MAX} (HEALTH_RESTART_UNITS_MAX)"),
            );
        }
        let is_unit = |unit: &String| unit.contains('.') && !unit.starts_with('-');
        if let Some(unit) = self.restart_units.iter().find(|unit| !is_unit(unit)) {
            let rule = format!("must be complete unit names like `{FABRIC_MANAGER}`, not `{unit}`");
            return broken("restart_units", rule);
        }
        if self.checks.len() > HEALTH_CHECKS_MAX {
            return broken(
                "checks",
                format!("has more than {HEALTH_CHECKS_MAX} (HEALTH_CHECKS_MAX)"),
            );
        }
        let names: BTreeSet<&str> = self.checks.iter().map(|it| it.name.as_str()).collect();
        if names.len() < self.checks.len() {
            return broken("checks", "must have different names");
        }
        self.checks.iter().find_map(SiteCheck::broken_rule)
    }
}

impl Expected {
    /// Rejects values that no host can meet: all hosts with such settings would be drained.
    fn broken_rule(&self) -> Option<BrokenRule> {
        let is_release = |text: &String| {
            let mut parts = text.split('.');
            let is_number =
                |part: &str| !part.is_empty() && part.bytes().all(|it| it.is_ascii_digit());
            text.contains('.') && parts.all(is_number)
        };
        let is_within =
            |value: Option<u64>, max: u64| value.is_none_or(|it| (1..=max).contains(&it));
        if let Some(driver) = self.driver.as_ref().filter(|text| !is_release(text)) {
            let rule = format!("must be a complete release like `580.65.06`, not `{driver}`");
            return broken("expected.driver", rule);
        }
        if !is_within(self.memory_mib, HEALTH_EXPECTED_MEMORY_MIB_MAX) {
            let rule = format!(
                "must be between 1 and {HEALTH_EXPECTED_MEMORY_MIB_MAX} (HEALTH_EXPECTED_MEMORY_MIB_MAX)"
            );
            return broken("expected.memory_mib", rule);
        }
        if !is_within(self.adapter_gbit_per_s, HEALTH_EXPECTED_GBIT_PER_S_MAX) {
            let rule = format!(
                "must be between 1 and {HEALTH_EXPECTED_GBIT_PER_S_MAX} (HEALTH_EXPECTED_GBIT_PER_S_MAX)"
            );
            return broken("expected.adapter_gbit_per_s", rule);
        }
        None
    }
}

impl SiteCheck {
    fn broken_rule(&self) -> Option<BrokenRule> {
        let is_letter = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_' | b'.');
        let is_name = !self.name.is_empty()
            && self.name.len() <= HEALTH_CHECK_NAME_BYTES_MAX
            && self.name.bytes().all(is_letter);
        if !is_name {
            let rule = format!(
                "check `{}` must have a name of letters, digits, `-`, `_` and `.`, \
                 at most {HEALTH_CHECK_NAME_BYTES_MAX} bytes",
                self.name
            );
            return broken("checks", rule);
        }
        let is_run = !self.command.is_empty() && self.period_s > 0 && self.timeout_s > 0;
        if is_run {
            return None;
        }
        let rule = format!(
            "check `{}` must have a command, a period and a timeout",
            self.name
        );
        broken("checks", rule)
    }
}

fn broken(field: &str, rule: impl Into<String>) -> Option<BrokenRule> {
    Some(BrokenRule {
        key: format!("health.{field}"),
        rule: rule.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str) -> SiteCheck {
        SiteCheck {
            name: name.to_owned(),
            command: vec!["true".to_owned()],
            period_s: 1,
            timeout_s: 1,
            dialect: CheckConvention::Nagios,
        }
    }

    #[test]
    fn broken_settings_are_named() {
        let rule = |change: fn(&mut HealthConfig)| {
            let mut config = HealthConfig::default();
            change(&mut config);
            config
                .broken_rule()
                .map_or_else(String::new, |broken| broken.to_string())
        };
        assert_eq!(rule(|_| {}), "");
        assert_eq!(rule(|it| it.kernel_log = "off".into()), "");
        assert!(rule(|it| it.kernel_log = "kmsg".into()).contains("kernel_log"));
        assert!(rule(|it| it.host_root = "host".into()).contains("host_root"));
        assert_eq!(rule(|it| *it = HealthConfig::of_a_simulated_host()), "");
        for change in [
            |it: &mut HealthConfig| it.mounts = vec!["/scratch".into()],
            |it: &mut HealthConfig| it.expected.memory_mib = Some(1_024),
        ] {
            let mut config = HealthConfig::of_a_simulated_host();
            change(&mut config);
            let broken = config.broken_rule().map(|broken| broken.to_string());
            assert!(broken.is_some_and(|rule| rule.contains("cannot be monitored")));
        }
        assert!(rule(|it| it.job_mapping = Some("jobs".into())).contains("job_mapping"));
        assert!(rule(|it| it.sample_ms = 0).contains("sample_ms"));
        assert!(rule(|it| it.mounts = vec!["scratch".into()]).contains("mounts"));
        for driver in ["580", "v580.65.06", "580..06", "580.65.", ""] {
            let expected = Expected {
                driver: Some(driver.to_owned()),
                ..Expected::default()
            };
            assert!(expected.broken_rule().is_some(), "{driver}");
        }
        assert!(rule(|it| it.expected.driver = Some("580".into())).contains("expected.driver"));
        assert!(rule(|it| it.expected.memory_mib = Some(0)).contains("expected.memory_mib"));
        assert!(rule(|it| it.expected.memory_mib = Some(u64::MAX)).contains("MEMORY_MIB_MAX"));
        let speed = |value| {
            let expected = Expected {
                driver: Some("580.65.06".to_owned()),
                memory_mib: Some(2_063_000),
                adapter_gbit_per_s: Some(value),
            };
            expected
                .broken_rule()
                .map_or_else(String::new, |broken| broken.to_string())
        };
        assert_eq!(speed(400), "");
        assert!(speed(0).contains("adapter") && speed(10_001).contains("GBIT_PER_S_MAX"));
        assert!(rule(|it| it.mounts = vec!["/a".into(); 65]).contains("HEALTH_MOUNTS_MAX"));
        assert!(rule(|it| it.restart_units = vec!["docker".into()]).contains("`docker`"));
        assert!(rule(|it| it.restart_units = vec!["--now.x".into()]).contains("--now.x"));
        let many = |it: &mut HealthConfig| it.restart_units = vec!["a.service".into(); 17];
        assert!(rule(many).contains("HEALTH_RESTART_UNITS_MAX"));
        assert!(rule(|it| it.checks = vec![check("a"), check("a")]).contains("different"));
        assert!(rule(|it| it.checks = vec![check("a b")]).contains("`a b`"));
        let hurried = |it: &mut HealthConfig| {
            it.checks = vec![SiteCheck {
                timeout_s: 0,
                ..check("disk")
            }];
        };
        assert!(rule(hurried).contains("`disk`"));
        let text = r#"{"kernel_log": "off", "kernal_log": "off"}"#;
        assert!(serde_json::from_str::<HealthConfig>(text).is_err());
    }

    #[test]
    fn only_the_kernel_is_trusted_to_write_its_own_log() {
        let mut config = HealthConfig::default();
        assert_eq!(
            config.log(),
            Some((Path::new("/dev/kmsg"), TrustedWriters::Kernel))
        );
        config.kernel_log = "/tmp/pipe".into();
        assert_eq!(
            config.log(),
            Some((Path::new("/tmp/pipe"), TrustedWriters::Tests))
        );
        config.kernel_log = "off".into();
        assert_eq!(config.log(), None);
    }
}
