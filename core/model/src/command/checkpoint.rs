//! Commands about checkpoints of tasks.

use serde::{Deserialize, Serialize};

use crate::ids::{AttemptEpoch, JobId, LeadershipEpoch, UnitIndex};

/// A command about a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckpointCommand {
    /// A task committed a checkpoint.
    CommitCheckpoint {
        /// The leader that received it.
        leader: LeadershipEpoch,
        /// Job of the checkpoint.
        job: JobId,
        /// The unit whose attempt wrote it.
        unit: UnitIndex,
        /// The checkpoint; rejected if its epoch is not the unit's current attempt.
        checkpoint: CheckpointCommit,
    },
    /// A task could not read a checkpoint: it is no longer offered to later attempts. Since command format 4.
    MarkCheckpointDamaged {
        /// The leader that received it.
        leader: LeadershipEpoch,
        /// Job of the checkpoint.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// The unit's current attempt, which reported it; any other is rejected.
        reporter: AttemptEpoch,
        /// The attempt that wrote it.
        epoch: AttemptEpoch,
        /// Training step of the checkpoint.
        step: u64,
        /// Description of the damage, for users.
        reason: String,
    },
}

impl CheckpointCommand {
    /// Epoch of the leader that issues it.
    #[must_use]
    pub const fn leader(&self) -> LeadershipEpoch {
        match self {
            Self::CommitCheckpoint { leader, .. } | Self::MarkCheckpointDamaged { leader, .. } => {
                *leader
            }
        }
    }
}

/// A checkpoint that a task committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointCommit {
    /// Attempt that wrote it.
    pub epoch: AttemptEpoch,
    /// Training step; strictly increasing within an attempt.
    pub step: u64,
    /// Absolute path of the directory.
    pub path: String,
    /// Size in bytes; 0 if unknown.
    pub size_bytes: u64,
    /// `algorithm:hex`; empty if unknown.
    pub digest: String,
    /// Milliseconds that the task took to write it; `None` if unknown.
    pub save_ms: Option<u64>,
}
