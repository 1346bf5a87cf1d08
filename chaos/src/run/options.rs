//! Settings of a run.

use std::path::PathBuf;
use std::time::Duration;

use muster_model::timings::Timings;
use muster_scheduler::{LogSettings, RaftTimings};

use crate::cluster::{NetworkKind, SMALL_TIMINGS};
use crate::run::Profile;

/// Settings of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The `muster` binary of replicas and workers.
    pub binary: PathBuf,
    /// Binary that they run before they are upgraded to `binary`; only for upgrades.
    pub previous: Option<PathBuf>,
    /// The example trainer, whose tasks record the GPU ledger.
    pub trainer: PathBuf,
    /// Profile of faults.
    pub profile: Profile,
    /// Network between replicas and hosts.
    pub network: NetworkKind,
    /// Repetitions of each fault.
    pub repetitions: u32,
    /// Seed of the users' calls and the fault targets.
    pub seed: u64,
    /// Folder for the report and the histories.
    pub out: PathBuf,
    /// Keeps the cluster folder.
    pub keep: bool,
}

/// Number of replicas.
pub(super) const REPLICAS: usize = 3;
/// Number of hosts.
pub(super) const WORKERS: usize = 4;
/// GPUs per host.
pub(super) const GPUS_PER_HOST: u32 = 8;
/// Heartbeats and leases.
pub(super) const TIMINGS: Timings = SMALL_TIMINGS;
/// Raft timings.
pub(super) const RAFT: RaftTimings = RaftTimings::QUICK;
/// Number of concurrent users that submit, read and cancel.
pub(super) const USERS: u32 = 4;
/// User number of the nemesis in the history.
pub(super) const NEMESIS: u32 = USERS;
/// User number of the pinned client.
pub(super) const PINNED_CLIENT: u32 = USERS + 1;
/// Deadline of the pinned client's calls: short, because its purpose is to call often.
pub(super) const PINNED_CLIENT_DEADLINE: Duration = Duration::from_millis(300);
/// A user's pause between two calls.
pub(super) const CALL_PAUSE: Duration = Duration::from_millis(30);
/// Deadline of a user's call; afterwards its outcome is unknown.
pub(super) const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// Deadline of one try of a call.
pub(super) const TRY_DEADLINE: Duration = Duration::from_millis(1_500);
/// Time without faults before each of them, in which the load is measured.
pub(super) const CALM: Duration = Duration::from_secs(2);
/// Minimum acknowledged calls per second before a fault; with fewer the fault proves nothing. etcd's
/// robustness tests require 50 to 100 of a key-value store; each of ours is a linearizable read or a
/// durable write, and starts processes.
pub(super) const LOAD_MIN_PER_S: f64 = 20.0;
/// Duration of a frozen process, an isolated host or a full disk.
pub(super) const SHORT_FAULT: Duration = Duration::from_secs(4);
/// Duration of an isolated host or a frozen agent: beyond the 5 s after which it counts as lost.
pub(super) const LONG_FAULT: Duration = Duration::from_secs(9);
/// Downtime of a killed process.
pub(super) const AWAY: Duration = Duration::from_secs(1);
/// Entries that a replica may lack at the end of a run: those of the last moments.
pub(super) const LAG_ENTRIES_MAX: u64 = 200;
/// Delay of slow syncs.
pub(super) const SLOW_SYNC_MS: i64 = 200;
/// Offset of a wall clock, in seconds.
pub(super) const CLOCK_STEP_S: i64 = 3_600;
/// Size of a replica's disk that is filled, in MiB.
pub(super) const DISK_MIB: u64 = 192;
/// A log that is never compacted, for the checkers.
pub(super) const WHOLE_LOG: LogSettings = LogSettings {
    snapshot_every_entries: 1 << 40,
    keep_entries: 1 << 40,
    history_snapshots: 1,
};
/// A log so short that a replica down for a second is sent a snapshot.
pub(super) const SHORT_LOG: LogSettings = LogSettings {
    snapshot_every_entries: 150,
    keep_entries: 10,
    history_snapshots: 1,
};
/// Snapshots triggered while a replica is down.
pub(super) const SNAPSHOTS: usize = 12;
/// Jobs in a storm of urgent ones.
pub(super) const STORM_JOBS: usize = 12;
/// Maximum recovery time of the cluster after a repair (L4).
pub(super) const WHOLE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time for all jobs to end after the last fault (I13).
pub(super) const DRAIN_TIMEOUT: Duration = Duration::from_secs(90);
/// Maximum time for a watcher to receive all events after the last fault.
pub(super) const WATCH_TIMEOUT: Duration = Duration::from_secs(15);
/// Polling interval.
pub(super) const POLL: Duration = Duration::from_millis(50);
/// Interval between the operator's rounds while the jobs end.
pub(super) const OPERATORS_ROUND: Duration = Duration::from_secs(2);
