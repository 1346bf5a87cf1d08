//! Settings of a replica.

use std::path::PathBuf;
use std::time::Duration;

use crate::member::transfer::SUCCESSOR_HEARTBEATS_MAX;
use crate::network::MESSAGE_BYTES_MAX;

/// Time allowed from election of a leader until its first write is acknowledged.
const FIRST_WRITE: Duration = Duration::from_secs(1);

/// Timings of Raft, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timings {
    /// Interval of the leader's heartbeats.
    pub heartbeat_ms: u64,
    /// Shortest election timeout of a follower.
    pub election_ms_min: u64,
    /// Longest election timeout; also the leader's lease. A crash fails over in about `election_ms_max +
    /// election_ms_min..election_ms_max`.
    pub election_ms_max: u64,
}

impl Timings {
    /// For disks whose syncs may take tens of milliseconds: fails over in about 1.65 s.
    pub const PRODUCTION: Self = Self {
        heartbeat_ms: 100,
        election_ms_min: 500,
        election_ms_max: 1_000,
    };
    /// For disks whose syncs take a few milliseconds at most: fails over in about 0.45 s.
    pub const FAST: Self = Self {
        heartbeat_ms: 50,
        election_ms_min: 100,
        election_ms_max: 250,
    };

    /// Longest silence after which a leader still counts as one: on the leader, time without answers from a
    /// majority; on a follower, time without a message from the leader. Twice the lease, because the lease
    /// alone would flap with every stall of a disk.
    #[must_use]
    pub const fn leader_silence_max(self) -> Duration {
        Duration::from_millis(self.election_ms_max.saturating_mul(2))
    }

    /// Time within which a lost leader should be replaced: the documented promise (L1), twice
    /// `election_ms_max` plus one second for the first write.
    #[must_use]
    pub const fn replaced_within(self) -> Duration {
        self.leader_silence_max().saturating_add(FIRST_WRITE)
    }

    /// Longest silence of a voter, in milliseconds, after which it is still eligible as successor:
    /// [`SUCCESSOR_HEARTBEATS_MAX`] heartbeats.
    pub const fn successor_silence_ms_max(self) -> u64 {
        SUCCESSOR_HEARTBEATS_MAX.saturating_mul(self.heartbeat_ms)
    }
}

impl Default for Timings {
    fn default() -> Self {
        Self::PRODUCTION
    }
}

/// Limits of the leader's batching and of its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Most commands in one log entry.
    pub entry_commands_max: usize,
    /// Most encoded bytes in one log entry.
    pub entry_bytes_max: usize,
    /// Most bytes of one command.
    pub command_bytes_max: usize,
    /// Most bytes of one proposal, which always fits one entry even where it exceeds
    /// `entry_bytes_max`.
    pub proposal_bytes_max: usize,
    /// Most log entries proposed and not yet applied.
    pub in_flight_entries_max: usize,
    /// Most proposals waiting to be packed.
    pub queued_proposals_max: usize,
}

impl Default for BatchLimits {
    fn default() -> Self {
        Self {
            entry_commands_max: 1_024,
            entry_bytes_max: 1024 * 1024,
            command_bytes_max: 8 * 1024 * 1024,
            proposal_bytes_max: 16 * 1024 * 1024,
            in_flight_entries_max: 2,
            queued_proposals_max: 16_384,
        }
    }
}

/// Snapshot frequency, and the amount of log kept behind snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotPolicy {
    /// Log entries applied between two snapshots.
    pub snapshot_every_entries: u64,
    /// Bytes of log applied between two snapshots, whichever comes first.
    pub snapshot_every_bytes: u64,
    /// Entries kept below the snapshot for followers that lag a little.
    pub keep_entries: u64,
    /// Bytes of a snapshot sent in one message.
    pub chunk_bytes: usize,
    /// Number of newest snapshots that are kept with all of the log since the oldest of them, so that the
    /// state at every revision since then can be rebuilt ([`Handle::state_at`](crate::Handle::state_at)).
    /// With 1, only the log since the newest snapshot is kept, beside `keep_entries`.
    pub history_snapshots: usize,
}

impl SnapshotPolicy {
    /// Whether log is kept for reading past states.
    pub(crate) const fn keeps_history(&self) -> bool {
        self.history_snapshots > 1
    }
}

impl Default for SnapshotPolicy {
    fn default() -> Self {
        Self {
            snapshot_every_entries: 10_000,
            snapshot_every_bytes: 256 * 1024 * 1024,
            keep_entries: 2_000,
            chunk_bytes: 1024 * 1024,
            history_snapshots: 1,
        }
    }
}

/// Settings of one replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// This replica's id, unique in its group, not 0.
    pub replica_id: u64,
    /// Id of the group; a data directory or a message of another group is rejected.
    pub cluster_id: String,
    /// Directory of the log, the snapshots and the lock file.
    pub data_dir: PathBuf,
    /// Timings of Raft.
    pub timings: Timings,
    /// Limits of batching.
    pub batch: BatchLimits,
    /// Snapshot policy.
    pub snapshots: SnapshotPolicy,
    /// Most entries in one append message to a follower.
    pub append_entries_max: u64,
    /// Most bytes read from the log for one append message; one entry is always sent.
    pub append_bytes_max: usize,
    /// Most recent entries kept in memory for replication and apply.
    pub cached_entries_max: usize,
    /// Most bytes of entries kept in memory for replication and apply.
    pub cached_bytes_max: usize,
    /// Log entries between two comparisons of the state hash between replicas; 0 turns them off.
    pub hash_every_entries: u64,
    /// Timeout of an exchange with another replica that is not an election message.
    pub peer_timeout_ms: u64,
}

impl Config {
    /// Settings with the documented defaults: 100/500-1000 ms timings.
    pub fn new(
        replica_id: u64,
        cluster_id: impl Into<String>,
        data_dir: impl Into<PathBuf>,
    ) -> Self {
        Self {
            replica_id,
            cluster_id: cluster_id.into(),
            data_dir: data_dir.into(),
            timings: Timings::default(),
            batch: BatchLimits::default(),
            snapshots: SnapshotPolicy::default(),
            append_entries_max: 256,
            append_bytes_max: 4 * 1024 * 1024,
            cached_entries_max: 8_192,
            cached_bytes_max: 4 * 1024 * 1024,
            hash_every_entries: 10_000,
            peer_timeout_ms: 5_000,
        }
    }

    /// Checks everything that can be checked before anything is opened.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let refuse = |field, rule| Err(ConfigError { field, rule });
        if self.replica_id == 0 {
            return refuse("replica_id", "must not be 0");
        }
        if self.cluster_id.is_empty() {
            return refuse("cluster_id", "must not be empty");
        }
        if self.timings.heartbeat_ms == 0 {
            return refuse("timings.heartbeat_ms", "must not be 0");
        }
        if self.timings.election_ms_min <= self.timings.heartbeat_ms {
            return refuse("timings.election_ms_min", "must exceed heartbeat_ms");
        }
        if self.timings.election_ms_max <= self.timings.election_ms_min {
            return refuse("timings.election_ms_max", "must exceed election_ms_min");
        }
        if self.snapshots.snapshot_every_entries == 0 {
            return refuse("snapshots.snapshot_every_entries", "must not be 0");
        }
        if self.snapshots.chunk_bytes == 0 {
            return refuse("snapshots.chunk_bytes", "must not be 0");
        }
        if self.snapshots.history_snapshots == 0 {
            return refuse("snapshots.history_snapshots", "must not be 0");
        }
        let batch = &self.batch;
        if batch.entry_commands_max == 0
            || batch.entry_bytes_max == 0
            || batch.command_bytes_max == 0
            || batch.proposal_bytes_max == 0
            || batch.in_flight_entries_max == 0
            || batch.queued_proposals_max == 0
        {
            return refuse("batch", "no limit may be 0");
        }
        if batch.proposal_bytes_max > MESSAGE_BYTES_MAX / 2 {
            return refuse(
                "batch.proposal_bytes_max",
                "must fit half a message (32 MiB)",
            );
        }
        if self.append_entries_max == 0 || self.append_bytes_max == 0 {
            return refuse("append_entries_max, append_bytes_max", "must not be 0");
        }
        Ok(())
    }
}

/// Invalid setting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("setting {field} {rule}")]
pub struct ConfigError {
    /// The field's name.
    pub field: &'static str,
    /// The violated rule.
    pub rule: &'static str,
}
