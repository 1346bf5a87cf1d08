//! Settings of a scheduler replica, with defaults and validation.

mod etcd_publish;
mod limits;
mod oidc;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

pub use etcd_publish::EtcdPublishSettings;
pub use limits::Limits;
use muster_etcd::{EtcdSettings, InvalidSetting};
use muster_model::ids::ReplicaId;
use muster_model::timings::Timings;
use muster_raft_store::SnapshotPolicy;
use muster_service::settings::{BrokenRule, LoggingSettings, Settings, TracingSettings};
use muster_tls::{TlsSettings, is_loopback};
pub use oidc::{GroupRole, OidcSettings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Default port of the gRPC listener.
pub const GRPC_PORT: u16 = 7400;
/// Default port of the Prometheus listener.
pub const METRICS_PORT: u16 = 7401;
/// Default validity of worker certificates in hours: a worker that is down for a week still has a valid one.
const WORKER_CERTIFICATE_HOURS: u32 = 30 * 24;
/// Maximum validity in hours.
const WORKER_CERTIFICATE_HOURS_MAX: u32 = 87_600;
/// Most members of the replication group: more make writes slower and failures no rarer.
pub const PEERS_MAX: usize = 9;

/// Shortest interval between two backups in milliseconds: each costs as much as a snapshot.
const BACKUP_EVERY_MS_MIN: u64 = 1_000;

/// Default number of snapshots kept for reads of past revisions: always one whole snapshot interval.
const HISTORY_SNAPSHOTS_DEFAULT: usize = 2;
/// Most of them: the log between them is kept too, and is read at every start.
const HISTORY_SNAPSHOTS_MAX: usize = 100;

/// Settings of a replica; [`Default`] is a group of one on loopback.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SchedulerConfig {
    /// Id of this replica, one of `peers`.
    #[schemars(with = "u64")]
    pub replica_id: ReplicaId,
    /// Name of the cluster: data and messages of other clusters are refused.
    pub cluster_id: String,
    /// Address of the gRPC server. An address other than loopback requires `tls` or `insecure`.
    pub listen: SocketAddr,
    /// Certificates of this replica. Without them connections are not encrypted and callers are not
    /// authenticated.
    pub tls: TlsSettings,
    /// Identity provider (OpenID Connect) whose tokens are accepted.
    pub oidc: OidcSettings,
    /// Validity in hours of the certificates that this replica signs for workers (`tls.ca_key`). They are
    /// renewed before two thirds of that have passed.
    #[schemars(extend("x-reload" = true))]
    pub worker_certificate_hours: u32,
    /// Whether this replica may listen on any address without `tls`: every client that can connect then has
    /// full access.
    pub insecure: bool,
    /// All members of the group, this one included: id and `host:port` at which the other replicas and the
    /// clients reach it.
    #[schemars(with = "BTreeMap<u64, String>", extend("x-alias" = "peer"))]
    pub peers: BTreeMap<ReplicaId, String>,
    /// Replicas (`host:port`) of a running group that this one joins as a learner, with an id that was never
    /// used. Empty: it bootstraps the group, or is already a member.
    pub join: Vec<String>,
    /// Address (`host:port`) at which the other replicas and the clients reach a replica that joins, or that
    /// bootstraps the group through etcd; by default the address in `peers`.
    pub advertise: Option<String>,
    /// Directory of the log and the snapshots.
    pub data_dir: PathBuf,
    /// Heartbeats and leases of workers; the same on all replicas.
    pub timings: Timings,
    /// Timeouts of the replication.
    pub raft: RaftTimings,
    /// Retention of the replication log.
    pub log: LogSettings,
    /// Address of `/metrics`; not served if unset.
    pub metrics_listen: Option<SocketAddr>,
    /// Bootstraps the group with `peers` if there is no log yet. Safe to leave on, and safe on all replicas.
    pub bootstrap: bool,
    /// Users who, in a cluster without certificates, may run commands beside the tasks of all users' jobs,
    /// save snapshots, read the audit log, change log levels and inspect processes; with certificates the
    /// role `admin` grants this. The same on all replicas.
    #[schemars(extend("x-reload" = true))]
    pub admins: BTreeSet<String>,
    /// Limits of the gRPC server.
    pub limits: Limits,
    /// Record of the calls that asked for a change.
    pub audit: AuditSettings,
    /// Periodic backups taken by the leader.
    pub backup: BackupSettings,
    /// An etcd, where the site runs one. Unused without endpoints.
    pub etcd: EtcdSettings,
    /// Publication of this replica in etcd, and bootstrap of a new group through etcd.
    pub etcd_publish: EtcdPublishSettings,
    /// Filter, format and destination of the log.
    pub logging: LoggingSettings,
    /// Destination of the spans that trace a job from its submission to its start.
    pub tracing: TracingSettings,
}

impl Default for SchedulerConfig {
    fn default() -> Self {
        let replica_id = ReplicaId(1);
        Self {
            replica_id,
            cluster_id: "muster".to_owned(),
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, GRPC_PORT)),
            tls: TlsSettings::default(),
            oidc: OidcSettings::default(),
            worker_certificate_hours: WORKER_CERTIFICATE_HOURS,
            insecure: false,
            peers: BTreeMap::from([(replica_id, format!("127.0.0.1:{GRPC_PORT}"))]),
            join: Vec::new(),
            advertise: None,
            data_dir: PathBuf::from("muster-data"),
            timings: Timings::default(),
            raft: RaftTimings::default(),
            log: LogSettings::default(),
            metrics_listen: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, METRICS_PORT))),
            bootstrap: true,
            admins: BTreeSet::from(["root".to_owned()]),
            limits: Limits::default(),
            audit: AuditSettings::default(),
            backup: BackupSettings::default(),
            etcd: EtcdSettings::default(),
            etcd_publish: EtcdPublishSettings::default(),
            logging: LoggingSettings::default(),
            tracing: TracingSettings::default(),
        }
    }
}

/// Timeouts of the replication, in milliseconds.
///
/// A crashed leader is replaced after about `election_ms_max` plus a random time between the two election
/// timeouts. Shorter timeouts need a disk with fast syncs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RaftTimings {
    /// Interval of the leader's heartbeats.
    pub heartbeat_ms: u64,
    /// Shortest wait of a follower before it starts an election.
    pub election_ms_min: u64,
    /// Longest wait; also the leader's lease.
    pub election_ms_max: u64,
}

impl RaftTimings {
    /// For local NVMe, tests and demos: fails over in about 0.45 s.
    pub const QUICK: Self = Self {
        heartbeat_ms: 50,
        election_ms_min: 100,
        election_ms_max: 250,
    };
}

impl From<RaftTimings> for muster_raft_store::Timings {
    fn from(settings: RaftTimings) -> Self {
        Self {
            heartbeat_ms: settings.heartbeat_ms,
            election_ms_min: settings.election_ms_min,
            election_ms_max: settings.election_ms_max,
        }
    }
}

impl Default for RaftTimings {
    /// [`RaftTimings::QUICK`]: required by the product's promise P1 (failover within 1 s).
    fn default() -> Self {
        Self::QUICK
    }
}

/// Snapshot interval and log retention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LogSettings {
    /// Log entries between two snapshots.
    pub snapshot_every_entries: u64,
    /// Entries kept below a snapshot for replicas that lag slightly; replicas further behind receive the
    /// snapshot.
    pub keep_entries: u64,
    /// Snapshots kept together with the log since the oldest of them: reads at a past revision (`--at`) reach
    /// back that far. 1: only since the newest one.
    pub history_snapshots: usize,
}

impl Default for LogSettings {
    fn default() -> Self {
        let policy = SnapshotPolicy::default();
        Self {
            snapshot_every_entries: policy.snapshot_every_entries,
            keep_entries: policy.keep_entries,
            history_snapshots: HISTORY_SNAPSHOTS_DEFAULT,
        }
    }
}

/// Location and retention of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuditSettings {
    /// Folder of its files; `audit` in the data directory if unset.
    pub dir: Option<PathBuf>,
    /// File size in bytes after which a new file is started.
    pub file_bytes_max: u64,
    /// Files kept, the oldest are removed; 0 keeps all.
    pub files_max: usize,
}

impl Default for AuditSettings {
    /// One gibibyte: about four million calls.
    fn default() -> Self {
        Self {
            dir: None,
            file_bytes_max: 64 << 20,
            files_max: 16,
        }
    }
}

/// Periodic backups taken by the leader.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BackupSettings {
    /// Folder of the backups, ideally shared by all replicas; no backups are taken if unset.
    pub dir: Option<PathBuf>,
    /// Interval between two backups, in milliseconds.
    pub every_ms: u64,
    /// Backups of this cluster kept in the folder, the oldest are removed; 0 keeps all.
    pub keep: usize,
    /// File with the encryption key, 64 hexadecimal digits; backups are not encrypted if unset.
    pub key_file: Option<PathBuf>,
}

impl Default for BackupSettings {
    /// Every hour, kept for two days.
    fn default() -> Self {
        Self {
            dir: None,
            every_ms: 3_600_000,
            keep: 48,
            key_file: None,
        }
    }
}

impl Settings for SchedulerConfig {
    const ROLE: &'static str = "scheduler";

    fn broken_rule(&self) -> Option<BrokenRule> {
        self.validate().err()
    }
}

impl SchedulerConfig {
    /// Checks everything that can be checked before any resource is opened.
    ///
    /// # Errors
    /// The first field that violates a rule.
    pub fn validate(&self) -> Result<(), BrokenRule> {
        self.validate_group()?;
        self.validate_security()?;
        self.validate_timings()?;
        let is_some = self.log.snapshot_every_entries > 0;
        require(is_some, "log.snapshot_every_entries", || {
            "must not be 0".to_owned()
        })?;
        let history = 1..=HISTORY_SNAPSHOTS_MAX;
        require(
            history.contains(&self.log.history_snapshots),
            "log.history_snapshots",
            || format!("must be 1 to {HISTORY_SNAPSHOTS_MAX} (HISTORY_SNAPSHOTS_MAX)"),
        )?;
        require(
            self.audit.file_bytes_max > 0,
            "audit.file_bytes_max",
            || "must not be 0".to_owned(),
        )?;
        require(
            self.backup.every_ms >= BACKUP_EVERY_MS_MIN,
            "backup.every_ms",
            || format!("must be at least {BACKUP_EVERY_MS_MIN} (BACKUP_EVERY_MS_MIN)"),
        )?;
        let broken_rule = |InvalidSetting { key, rule }| BrokenRule { key, rule };
        self.etcd.validate().map_err(broken_rule)?;
        self.etcd_publish
            .validate(self.etcd.is_on(), self.advertise.is_some(), joins(self))?;
        self.logging.filter()?;
        self.tracing.validate()?;
        self.limits.validate()
    }

    /// Address at which the other replicas reach this one.
    #[must_use]
    pub fn advertised_address(&self) -> &str {
        let in_peers = self.peers.get(&self.replica_id);
        let address = self.advertise.as_ref().or(in_peers);
        address.map_or("", String::as_str)
    }

    /// The members of the group according to the settings; only this replica if it joins a group.
    #[must_use]
    pub fn members(&self) -> BTreeMap<ReplicaId, String> {
        match &self.advertise {
            Some(address) => BTreeMap::from([(self.replica_id, address.clone())]),
            None => self.peers.clone(),
        }
    }

    /// The advertised address, if it is not loopback while this replica listens on loopback: other machines
    /// cannot connect then, unless a proxy of the site forwards connections.
    #[must_use]
    pub fn unreachable_address(&self) -> Option<&str> {
        let address = self.advertised_address();
        (self.listen.ip().is_loopback() && !is_loopback(address)).then_some(address)
    }

    fn validate_group(&self) -> Result<(), BrokenRule> {
        require(!self.cluster_id.is_empty(), "cluster_id", || {
            "must not be empty".to_owned()
        })?;
        require(self.replica_id.get() != 0, "replica_id", || {
            "must not be 0".to_owned()
        })?;
        require(self.peers.len() <= PEERS_MAX, "peers", || {
            format!(
                "has {} members, the limit is {PEERS_MAX} (PEERS_MAX)",
                self.peers.len()
            )
        })?;
        require(
            self.members().contains_key(&self.replica_id),
            "peers",
            || format!("must contain this replica ({})", self.replica_id),
        )?;
        let is_used = joins(self) || self.etcd_publish.bootstrap_expect > 0;
        require(is_used || self.advertise.is_none(), "advertise", || {
            "applies only to a replica that joins (`join`) or bootstraps the group through etcd \
             (`etcd_publish.bootstrap_expect`); else set its address in `peers`"
                .to_owned()
        })?;
        if let Some(address) = &self.advertise {
            require(is_host_and_port(address), "advertise", || {
                format!("`{address}` is not `host:port`")
            })?;
        }
        for address in &self.join {
            require(is_host_and_port(address), "join", || {
                format!("`{address}` is not `host:port`")
            })?;
        }
        for (id, address) in &self.peers {
            let field = format!("peers[{id}]");
            require(id.get() != 0, &field, || {
                "a replica id must not be 0".to_owned()
            })?;
            require(is_host_and_port(address), &field, || {
                format!("`{address}` is not `host:port`")
            })?;
        }
        Ok(())
    }

    fn validate_security(&self) -> Result<(), BrokenRule> {
        if let Some((key, rule)) = self.tls.broken_rule() {
            return require(false, key, || rule.to_owned());
        }
        self.oidc.validate(self.tls.is_on())?;
        let hours = 1..=WORKER_CERTIFICATE_HOURS_MAX;
        let is_within = hours.contains(&self.worker_certificate_hours);
        require(is_within, "worker_certificate_hours", || {
            format!("must be from 1 to {WORKER_CERTIFICATE_HOURS_MAX} (ten years)")
        })?;
        let is_closed = self.tls.is_on() || self.listen.ip().is_loopback();
        require(is_closed || self.insecure, "listen", || {
            let address = self.listen;
            format!(
                "{address} is not loopback, and without TLS any client has full access: set `tls.ca`, \
                 `tls.certificate` and `tls.key` (created by `muster cert`, docs/security.md), or allow \
                 it with `--insecure` (`insecure = true`)"
            )
        })
    }

    fn validate_timings(&self) -> Result<(), BrokenRule> {
        let Timings {
            heartbeat_ms,
            suspect_ms,
            lost_ms,
        } = self.timings;
        require(heartbeat_ms > 0, "timings.heartbeat_ms", || {
            "must not be 0".to_owned()
        })?;
        require(suspect_ms > heartbeat_ms, "timings.suspect_ms", || {
            format!("must exceed beat_ms ({heartbeat_ms})")
        })?;
        require(lost_ms > suspect_ms, "timings.lost_ms", || {
            format!("must exceed suspect_ms ({suspect_ms})")
        })?;
        let RaftTimings {
            heartbeat_ms,
            election_ms_min,
            election_ms_max,
        } = self.raft;
        require(heartbeat_ms > 0, "raft.heartbeat_ms", || {
            "must not be 0".to_owned()
        })?;
        require(
            election_ms_min > heartbeat_ms,
            "raft.election_ms_min",
            || format!("must exceed heartbeat_ms ({heartbeat_ms})"),
        )?;
        require(
            election_ms_max > election_ms_min,
            "raft.election_ms_max",
            || format!("must exceed election_ms_min ({election_ms_min})"),
        )
    }
}

fn joins(config: &SchedulerConfig) -> bool {
    !config.join.is_empty()
}

fn require(holds: bool, field: &str, rule: impl FnOnce() -> String) -> Result<(), BrokenRule> {
    if holds {
        return Ok(());
    }
    Err(BrokenRule {
        key: field.to_owned(),
        rule: rule(),
    })
}

pub(crate) fn is_host_and_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_advertised_address_is_unreachable_if_only_loopback_is_listened_on() {
        let joins = |listen: &str, advertised: &str| SchedulerConfig {
            listen: listen
                .parse()
                .unwrap_or(SocketAddr::from(([0, 0, 0, 0], 1))),
            join: vec!["node1:7400".to_owned()],
            advertise: Some(advertised.to_owned()),
            ..SchedulerConfig::default()
        };
        let unreachable = [
            ("127.0.0.1:7400", "node4:7400"),
            ("[::1]:7400", "10.0.0.4:7400"),
        ];
        for (listen, advertised) in unreachable {
            assert_eq!(
                joins(listen, advertised).unreachable_address(),
                Some(advertised)
            );
        }
        let reachable = [
            ("0.0.0.0:7400", "node4:7400"),
            ("10.0.0.4:7400", "node4:7400"),
            ("127.0.0.1:7400", "127.0.0.1:7500"),
            ("127.0.0.1:7400", "localhost:7400"),
            ("127.0.0.1:7400", "[::1]:7400"),
        ];
        for (listen, advertised) in reachable {
            assert_eq!(
                joins(listen, advertised).unreachable_address(),
                None,
                "{listen}"
            );
        }
        assert_eq!(SchedulerConfig::default().unreachable_address(), None);
    }

    #[test]
    fn the_defaults_are_valid() {
        assert_eq!(SchedulerConfig::default().validate(), Ok(()));
    }

    #[test]
    fn a_broken_setting_is_named() {
        type Damage = fn(&mut SchedulerConfig);
        let cases: [(Damage, &str); 13] = [
            (|config| config.cluster_id.clear(), "cluster_id"),
            (|config| config.replica_id = ReplicaId(0), "replica_id"),
            (|config| config.peers.clear(), "peers"),
            (
                |config| {
                    config.peers.insert(ReplicaId(2), "nowhere".to_owned());
                },
                "peers[2]",
            ),
            (|config| config.backup.every_ms = 10, "backup.every_ms"),
            (
                |config| config.audit.file_bytes_max = 0,
                "audit.file_bytes_max",
            ),
            (|config| config.join.push("node1".to_owned()), "join"),
            (
                |config| config.advertise = Some("node1:7400".to_owned()),
                "advertise",
            ),
            (
                |config| {
                    config.join = vec!["node2:7400".to_owned()];
                    config.advertise = Some("node1".to_owned());
                },
                "advertise",
            ),
            (|config| config.timings.suspect_ms = 1, "timings.suspect_ms"),
            (
                |config| config.raft.election_ms_max = 0,
                "raft.election_ms_max",
            ),
            (
                |config| config.limits.message_bytes_max = 1,
                "limits.message_bytes_max",
            ),
            (
                |config| config.limits.page_rows_max = 0,
                "limits.page_rows_max",
            ),
        ];
        for (damage, field) in cases {
            let mut config = SchedulerConfig::default();
            damage(&mut config);
            assert_eq!(
                config.validate().map_err(|error| error.key),
                Err(field.to_owned())
            );
        }
    }
}
