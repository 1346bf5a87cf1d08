//! Settings of a run.

use std::path::PathBuf;
use std::time::Duration;

use muster_model::timings::Timings;
use muster_scheduler::{LogSettings, RaftTimings};

use crate::cluster::{NetworkKind, SMALL_TIMINGS};
use crate::run::Profile;

/// What a run is made from.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The `muster` binary that replicas and workers run.
    pub binary: PathBuf,
    /// The binary that they run before they are upgraded to `binary`; only for what upgrades.
    pub previous: Option<PathBuf>,
    /// The example trainer, whose tasks keep the book of GPUs.
    pub trainer: PathBuf,
    /// Which faults.
    pub profile: Profile,
    /// What stands between replicas and hosts.
    pub network: NetworkKind,
    /// How often each.
    pub repetitions: u32,
    /// Draws what users do and what is hit.
    pub seed: u64,
    /// Where the report and the histories go.
    pub out: PathBuf,
    /// Leaves the cluster's folder behind.
    pub keep: bool,
}

/// Replicas of the cluster.
pub(super) const REPLICAS: usize = 3;
/// Its hosts.
pub(super) const WORKERS: usize = 4;
/// GPUs of each.
pub(super) const GPUS_PER_HOST: u32 = 8;
/// Heartbeats and leases.
pub(super) const TIMINGS: Timings = SMALL_TIMINGS;
/// Clocks of the replication.
pub(super) const RAFT: RaftTimings = RaftTimings::QUICK;
/// Users that submit, read and cancel at once.
pub(super) const USERS: u32 = 4;
/// The number of whoever breaks things, where it calls as users do.
pub(super) const NEMESIS: u32 = USERS;
/// The number of the client that asks one replica alone.
pub(super) const LOYAL: u32 = USERS + 1;
/// Longest that it waits for an answer: it is there to ask often, not to be answered.
pub(super) const LOYAL_DEADLINE: Duration = Duration::from_millis(300);
/// A user's pause between two calls.
pub(super) const CALL_PAUSE: Duration = Duration::from_millis(30);
/// Longest that a user waits for an answer: beyond it nobody knows what came of the call.
pub(super) const CALL_DEADLINE: Duration = Duration::from_secs(10);
/// Longest that one try of a call may take.
pub(super) const TRY_DEADLINE: Duration = Duration::from_millis(1_500);
/// Time without faults before each of them, in which the load is measured.
pub(super) const CALM: Duration = Duration::from_secs(2);
/// Acknowledged calls a second before a fault, at least: with fewer it proves nothing. etcd's robustness tests ask for 50
/// to 100 of a key-value store; each of ours is a linearizable read or a durable write, and starts processes.
pub(super) const LOAD_MIN_PER_S: f64 = 20.0;
/// How long a process is frozen, a host parted or a disk full.
pub(super) const SHORT_FAULT: Duration = Duration::from_secs(4);
/// How long a host is cut off or its agent frozen: beyond the 5 s after which it counts as lost.
pub(super) const LONG_FAULT: Duration = Duration::from_secs(9);
/// How long a killed process stays away.
pub(super) const AWAY: Duration = Duration::from_secs(1);
/// Entries that a replica may lack at the end of a run: those of its last moments.
pub(super) const LAG_ENTRIES_MAX: u64 = 200;
/// How long a replica's syncs are slow, and by how much.
pub(super) const SLOW_SYNC_MS: i64 = 200;
/// How far a wall clock is set, in seconds.
pub(super) const CLOCK_STEP_S: i64 = 3_600;
/// Size of a replica's disk that is filled, in MiB.
pub(super) const DISK_MIB: u64 = 192;
/// A log that is never cut: what the run is judged by.
pub(super) const WHOLE_LOG: LogSettings = LogSettings {
    snapshot_every_entries: 1 << 40,
    keep_entries: 1 << 40,
    history_snapshots: 1,
};
/// A log so short that a replica which was away for a second is sent a snapshot.
pub(super) const SHORT_LOG: LogSettings = LogSettings {
    snapshot_every_entries: 150,
    keep_entries: 10,
    history_snapshots: 1,
};
/// Snapshots that are asked for while a replica is away.
pub(super) const SNAPSHOTS: usize = 12;
/// Jobs of a storm of urgent ones.
pub(super) const STORM_JOBS: usize = 12;
/// Longest that the cluster may take to be whole after a fault has been healed (L4).
pub(super) const WHOLE_PATIENCE: Duration = Duration::from_secs(30);
/// Longest that the jobs may take to end once nothing is broken any more (I13).
pub(super) const DRAIN_PATIENCE: Duration = Duration::from_secs(90);
/// Longest that a watcher may take to hear of everything once nothing is broken any more.
pub(super) const WATCH_PATIENCE: Duration = Duration::from_secs(15);
/// Pause between two looks at the cluster.
pub(super) const POLL: Duration = Duration::from_millis(50);
/// How often the operator looks at the cluster while the jobs end.
pub(super) const OPERATORS_ROUND: Duration = Duration::from_secs(2);
