//! Settings of a worker, with their defaults and rules.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use muster_etcd::{EtcdSettings, InvalidSetting};
use muster_model::limits::{GPUS_PER_HOST_MAX, LABELS_MAX};
use muster_monitor::gpu::GpuConfig;
use muster_monitor::health::HealthConfig;
use muster_monitor::topology::TopologyConfig;
use muster_service::settings::{BrokenRule, LoggingSettings, Settings, TracingSettings};
use muster_supervisor::LogLimits;
use muster_tls::{TlsSettings, is_loopback};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::connection::joining;
use crate::limits::{CHECKPOINT_SCAN_INTERVAL, GPU_MEMORY_WAIT_MS_MAX};
use crate::tasks::accounts::TasksConfig;
use crate::tasks::container_engine::ContainerEngineConfig;
use crate::tasks::logs::{LogRetention, LogShipping};

/// Number of labels that a worker adds by itself: container engine, driver and account of tasks.
const OWN_LABELS: usize = 3;

/// Settings of a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct WorkerConfig {
    /// Host name, unique in the cluster; the machine's own if not set.
    pub name: Option<String>,
    /// Address under which tasks of other hosts reach this one (`MASTER_ADDR`); the host name if not set.
    #[schemars(extend("x-flag" = "task-address"))]
    pub address: Option<String>,
    /// Addresses (`host:port`) of scheduler replicas; one that is up is enough to find the leader.
    pub schedulers: Vec<String>,
    /// An etcd in which replicas are found, in addition to `schedulers`, which may then be empty.
    pub etcd: EtcdSettings,
    /// The cluster whose replicas are looked up in etcd; `etcd.prefix` takes precedence.
    pub cluster_id: String,
    /// Certificates of this worker, which authenticate its host by name. Without them it connects only to
    /// replicas without certificates.
    pub tls: TlsSettings,
    /// File with a join token, with which this worker requests a certificate if `data_dir` has none; it
    /// stores the certificate there and renews it. The token may also be in the variable MUSTER_JOIN_TOKEN.
    /// `tls.ca` may be set as well, the other TLS settings may not.
    pub join_token_file: Option<PathBuf>,
    /// Allows this worker to obey a replica on another machine without `tls`: any process that answers
    /// there can run anything on this host.
    pub insecure: bool,
    /// Directory of identity, journal, running tasks and logs. On a local disk.
    pub data_dir: PathBuf,
    /// Directory of the checkpoints of all jobs, at the same path on every host; a folder of `data_dir` if
    /// not set.
    pub checkpoint_root: Option<PathBuf>,
    /// The GPUs to offer: `auto` (real ones if NVML is available, else none), `nvml` (real ones; without
    /// NVML the worker does not start), `none`, or simulated ones as
    /// `{ simulated = { count = 8, model = "H100", memory_mib = 81920 } }`.
    pub gpus: GpuConfig,
    /// CPU to offer, in thousandths of a CPU; all of the machine if not set.
    pub cpus_milli: Option<u32>,
    /// Memory to offer, in MiB; all of the machine if not set.
    pub memory_mib: Option<u64>,
    /// Labels chosen by the site; names that begin with `muster.` are reserved for the worker.
    #[schemars(extend("x-alias" = "label"))]
    pub labels: BTreeMap<String, String>,
    /// Location of this host and its GPUs.
    pub topology: TopologyConfig,
    /// The program with the hidden subcommand `supervise <task directory>`; if not set, `muster-supervise`
    /// beside this program, else this program itself.
    pub supervisor: Option<PathBuf>,
    /// Accounts that tasks run as.
    pub tasks: TasksConfig,
    /// Use of cgroups for tasks: they enforce limits and are the most reliable way to find all processes of
    /// a task.
    pub cgroups: CgroupUse,
    /// True: a task is limited to its CPUs even if others are idle. False: its CPUs only set its weight.
    pub cpu_quota: bool,
    /// Folder of the secrets that jobs may name, one file each; without it this host has none.
    pub secrets_dir: Option<PathBuf>,
    /// Folder in memory (tmpfs) for data that must never reach a disk; a folder of `/dev/shm` if not set.
    pub run_dir: Option<PathBuf>,
    /// `/dev/shm` and System V segments of tasks.
    pub shared_memory: SharedMemoryUse,
    /// Time to wait for a GPU's memory to be free when it passes from one task to the next, in
    /// milliseconds; afterwards the GPU is unfit until its memory is free.
    pub gpu_memory_wait_ms: u64,
    /// Engine for tasks that run in containers: `auto` (podman or docker, if one listens), `none`, or the
    /// path of an engine's socket.
    #[schemars(with = "String")]
    pub container_engine: ContainerEngineConfig,
    /// File with this host's registry logins, as `podman login` and `docker login` write it; the engine's
    /// own logins if not set.
    pub registry_auth_file: Option<PathBuf>,
    /// Output kept of one task, for each of its two streams.
    pub log_limits: TaskLogSettings,
    /// Output kept of attempts that have ended.
    pub log_retention: LogRetention,
    /// Shipping of output to other storage; off if not set.
    pub log_shipping: Option<LogShipping>,
    /// Monitoring, repairs and checks of the host's health.
    pub health: HealthConfig,
    /// Interval between scans of a task's checkpoint directory, in milliseconds.
    pub checkpoint_scan_ms: u64,
    /// Address on which `/metrics` listens for Prometheus; none if not set.
    pub metrics_listen: Option<SocketAddr>,
    /// Filter and format of the log.
    pub logging: LoggingSettings,
    /// Destination of the spans that trace a job from submission to start.
    pub tracing: TracingSettings,
}

impl Default for WorkerConfig {
    fn default() -> Self {
        Self {
            name: None,
            address: None,
            schedulers: vec!["127.0.0.1:7400".to_owned()],
            etcd: EtcdSettings::default(),
            cluster_id: "muster".to_owned(),
            tls: TlsSettings::default(),
            join_token_file: None,
            insecure: false,
            data_dir: PathBuf::from("muster-worker"),
            checkpoint_root: None,
            gpus: GpuConfig::Auto,
            cpus_milli: None,
            memory_mib: None,
            labels: BTreeMap::new(),
            topology: TopologyConfig::default(),
            supervisor: None,
            tasks: TasksConfig::default(),
            cgroups: CgroupUse::Auto,
            cpu_quota: false,
            secrets_dir: None,
            run_dir: None,
            shared_memory: SharedMemoryUse::Private,
            gpu_memory_wait_ms: GPU_MEMORY_WAIT_MS_MAX,
            container_engine: ContainerEngineConfig::Auto,
            registry_auth_file: None,
            log_limits: TaskLogSettings::default(),
            log_retention: LogRetention::default(),
            log_shipping: None,
            health: HealthConfig::default(),
            checkpoint_scan_ms: u64::try_from(CHECKPOINT_SCAN_INTERVAL.as_millis())
                .unwrap_or(u64::MAX),
            metrics_listen: None,
            logging: LoggingSettings::default(),
            tracing: TracingSettings::default(),
        }
    }
}

/// Use of cgroups for tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CgroupUse {
    /// No cgroups: limits are not enforced.
    Off,
    /// As far as the host permits.
    #[default]
    Auto,
    /// With limits of memory and processes and with CPU weights; if one of them is unavailable, the worker
    /// does not start.
    Required,
}

/// Shared memory of tasks that have GPUs or are members of gangs. Containers have that of their engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SharedMemoryUse {
    /// The tasks of an attempt share a private segment on this host, removed with the last of them. Falls
    /// back to the host's if the worker may not mount, or its `run_dir` is not in memory.
    #[default]
    Private,
    /// The host's. What tasks leave in it stays.
    Host,
}

/// Output kept of one stream of a task, the newest part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TaskLogSettings {
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// Number of segments kept, the newest ones.
    pub segments_max: usize,
}

impl Default for TaskLogSettings {
    fn default() -> Self {
        let limits = LogLimits::default();
        Self {
            segment_bytes: limits.segment_bytes,
            segments_max: limits.segments_max,
        }
    }
}

impl Settings for WorkerConfig {
    const ROLE: &'static str = "worker";

    fn broken_rule(&self) -> Option<BrokenRule> {
        self.validate().err()
    }
}

impl WorkerConfig {
    /// Limits of the output that a task's supervisor keeps.
    pub(crate) fn task_log_limits(&self) -> LogLimits {
        let shipping = self.log_shipping.as_ref();
        LogLimits {
            segment_bytes: self.log_limits.segment_bytes,
            segments_max: self.log_limits.segments_max,
            unshipped_segments_max: shipping.map(|shipping| shipping.unshipped_segments_max),
        }
    }

    fn broken_rule_of_logs(&self) -> Option<(&'static str, &'static str)> {
        let (limits, shipping) = (&self.log_limits, self.log_shipping.as_ref());
        let has_room = limits.segment_bytes > 0 && limits.segments_max > 0;
        let names_a_program = shipping.is_none_or(|shipping| !shipping.command.is_empty());
        let leaves_time = shipping.is_none_or(|shipping| shipping.timeout_ms > 0);
        let rules = [
            (
                has_room,
                "log_limits.segments_max",
                "must leave room for output, as segment_bytes must",
            ),
            (
                names_a_program,
                "log_shipping.command",
                "must name a program",
            ),
            (
                leaves_time,
                "log_shipping.timeout_ms",
                "must leave the program time",
            ),
        ];
        let broken = rules.into_iter().find(|(holds, _, _)| !holds);
        broken.map(|(_, field, rule)| (field, rule))
    }

    /// Whether this worker connects to replicas with certificates, so that users are authenticated before
    /// they submit.
    pub(crate) fn has_certificates(&self) -> bool {
        self.tls.is_on() || joining::joins(self)
    }

    fn validate_security(&self) -> Result<(), BrokenRule> {
        let broken = |key: &str, rule: String| {
            let key = key.to_owned();
            Err(BrokenRule { key, rule })
        };
        if self.tls.ca_key.is_some() {
            let rule =
                "must not be on a worker, which signs nothing: this key can impersonate any user";
            return broken("tls.ca_key", rule.to_owned());
        }
        if joining::joins(self) {
            return Ok(());
        }
        if self.join_token_file.is_some() {
            let rule = "must not be set together with `tls.certificate` and `tls.key`";
            return broken("join_token_file", rule.to_owned());
        }
        if let Some((key, rule)) = self.tls.broken_rule() {
            return broken(key, rule.to_owned());
        }
        let far = self.schedulers.iter().find(|address| !is_loopback(address));
        match far {
            Some(address) if !self.tls.is_on() && !self.insecure => broken(
                "schedulers",
                format!(
                    "{address} is not loopback, and without TLS any process that answers there can run \
                     anything on this host: set `tls.ca`, `tls.certificate` and `tls.key` (created by \
                     `muster cert`, docs/security.md) or `join_token_file` (`muster worker token create`), or \
                     allow it by `--insecure` (`insecure = true`)"
                ),
            ),
            _ => Ok(()),
        }
    }

    /// Checks the rules that need only the settings.
    ///
    /// # Errors
    /// The first broken rule.
    pub fn validate(&self) -> Result<(), BrokenRule> {
        let broken = |field: &str, rule: &str| {
            Err(BrokenRule {
                key: field.to_owned(),
                rule: rule.to_owned(),
            })
        };
        let broken_rule = |InvalidSetting { key, rule }| BrokenRule { key, rule };
        self.etcd.validate().map_err(broken_rule)?;
        if self.schedulers.is_empty() && !self.etcd.is_on() {
            return broken(
                "schedulers",
                "must name at least one replica (host:port), or `etcd.endpoints` an etcd",
            );
        }
        if self.schedulers.iter().any(|address| !address.contains(':')) {
            return broken("schedulers", "must be of the form host:port");
        }
        self.validate_security()?;
        self.tasks.validate()?;
        if self.checkpoint_scan_ms == 0 {
            return broken("checkpoint_scan_ms", "must be at least 1");
        }
        if let Some((field, rule)) = self.broken_rule_of_logs() {
            return broken(field, rule);
        }
        if self.labels.keys().any(|name| name.starts_with("muster.")) {
            return broken(
                "labels",
                "must not begin with `muster.`: those are the worker's own",
            );
        }
        if self.labels.len() + OWN_LABELS > LABELS_MAX {
            let rule = format!(
                "must be at most {LABELS_MAX} (LABELS_MAX) with the worker's own {OWN_LABELS}"
            );
            return broken("labels", &rule);
        }
        if matches!(&self.container_engine, ContainerEngineConfig::Socket(path) if path.is_relative())
        {
            return broken(
                "container_engine",
                "must be `auto`, `none` or an absolute path",
            );
        }
        if self
            .registry_auth_file
            .as_ref()
            .is_some_and(|path| path.is_relative())
        {
            return broken("registry_auth_file", "must be an absolute path");
        }
        if let Some(rule) = self.topology.broken_rule() {
            return broken("topology", &rule);
        }
        if let Some(broken) = self.health.broken_rule() {
            return Err(broken);
        }
        self.logging.filter()?;
        self.tracing.validate()?;
        match &self.gpus {
            GpuConfig::Simulated { count, .. }
                if usize::try_from(*count).is_ok_and(|count| count > GPUS_PER_HOST_MAX) =>
            {
                let rule = format!(
                    "count {count} is over the limit of {GPUS_PER_HOST_MAX} (GPUS_PER_HOST_MAX)"
                );
                broken("gpus", &rule)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_settings_are_named() {
        assert_eq!(WorkerConfig::default().validate(), Ok(()));
        let bad = WorkerConfig {
            schedulers: vec!["nowhere".to_owned()],
            ..WorkerConfig::default()
        };
        assert!(bad.validate().is_err_and(|error| error.key == "schedulers"));
        let bad = WorkerConfig {
            labels: [("muster.engine".to_owned(), "mine".to_owned())].into(),
            ..WorkerConfig::default()
        };
        assert!(bad.validate().is_err_and(|error| error.key == "labels"));
        let bad = WorkerConfig {
            container_engine: ContainerEngineConfig::Socket("engine.sock".into()),
            ..WorkerConfig::default()
        };
        assert!(
            bad.validate()
                .is_err_and(|error| error.key == "container_engine")
        );
        let bad = WorkerConfig {
            health: HealthConfig {
                sample_ms: 0,
                ..HealthConfig::default()
            },
            ..WorkerConfig::default()
        };
        assert!(
            bad.validate()
                .is_err_and(|error| error.key == "health.sample_ms")
        );
        let far = WorkerConfig {
            schedulers: vec!["node1:7400".to_owned()],
            ..WorkerConfig::default()
        };
        assert!(far.validate().is_err_and(|error| error.key == "schedulers"));
        let joins = WorkerConfig {
            join_token_file: Some("token".into()),
            ..far
        };
        assert_eq!(joins.validate(), Ok(()));
        let mut both = joins;
        both.tls.certificate = Some("worker.pem".into());
        assert!(
            both.validate()
                .is_err_and(|error| error.key == "join_token_file")
        );
        let bad = WorkerConfig {
            registry_auth_file: Some("auth.json".into()),
            ..WorkerConfig::default()
        };
        assert!(
            bad.validate()
                .is_err_and(|error| error.key == "registry_auth_file")
        );
        let bad = WorkerConfig {
            gpus: GpuConfig::Simulated {
                count: 1_000,
                model: String::new(),
                memory_mib: 1,
                timeline: None,
                pci_addresses: Vec::new(),
            },
            ..WorkerConfig::default()
        };
        assert!(
            bad.validate()
                .is_err_and(|error| error.rule.contains("GPUS_PER_HOST_MAX"))
        );
    }
}
