//! Heartbeats of workers, with the worker's status after a change.

use serde::{Deserialize, Serialize};

use crate::command::{Exit, GpuHealth};
use crate::health::{Finding, Order};
use crate::ids::{AttemptEpoch, GpuUuid, LeadershipEpoch, Revision, TaskKey, UnitIndex};

/// A heartbeat. Never in the log: it affects the leader's memory only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Sequence number, counted from 1 within a stream; the acknowledgement names it.
    pub sequence: u64,
    /// Newest acknowledged sequence of this stream: shows the leader a one-way link.
    pub acknowledged: u64,
    /// Newest leadership that the worker has accepted.
    pub leader: LeadershipEpoch,
    /// Revision of the desired state that the worker has in force.
    pub desired_revision: Revision,
    /// The worker's complete status: on every new stream, after a change, and periodically.
    pub status: Option<WorkerStatus>,
}

/// Complete status of a worker for the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Every task that the leader has not yet released.
    pub tasks: Vec<TaskStatus>,
    /// Every GPU with its health.
    pub gpus: Vec<(GpuUuid, GpuHealth)>,
    /// Unacknowledged findings in the order of their numbers, at most `FINDINGS_PER_REPORT_MAX`.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Finished repairs and checks, until their orders are withdrawn.
    #[serde(default)]
    pub health_work: Vec<WorkDone>,
}

/// Result of a repair or a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkDone {
    /// The order.
    pub order: Order,
    /// Whether it succeeded.
    pub passed: bool,
    /// What was done or observed, for operators.
    pub evidence: String,
}

/// Status of one task on its worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStatus {
    /// The task.
    pub key: TaskKey,
    /// Index of the unit within its job.
    pub unit: UnitIndex,
    /// Epoch of the attempt.
    pub epoch: AttemptEpoch,
    /// Current phase.
    pub phase: WorkerTaskPhase,
    /// The newest checkpoints that the task committed to its worker, oldest first, at most
    /// `CHECKPOINTS_REPORTED_MAX`: all that the replicated state may not have yet, so that several between two
    /// heartbeats are all committed.
    pub checkpoints: Vec<CheckpointReport>,
    /// Last training step reported by the task; `None` if it reported none. Informational: only a committed
    /// checkpoint counts.
    pub progress_step: Option<u64>,
    /// Checkpoints of earlier attempts that the task could not read, at most `DAMAGED_REPORTED_MAX`.
    pub damaged: Vec<DamageReport>,
}

/// Phase of a task on its worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerTaskPhase {
    /// Journalled; its supervisor is being started.
    Starting,
    /// Its process is running.
    Running,
    /// It was asked to stop and has not ended yet.
    Stopping,
    /// It ended.
    Exited(Exit),
    /// The worker knows that it was started, but not how it ended (its supervisor vanished, the host
    /// rebooted).
    Gone {
        /// Details.
        detail: String,
    },
    /// It has everything it needs, and waits for the rest of its gang.
    Prepared {
        /// The port that this host reserves for the gang's rendezvous, if the task is rank 0.
        master_port: Option<u16>,
    },
}

/// A checkpoint of an earlier attempt that a task could not read, as reported to its worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DamageReport {
    /// Training step of the checkpoint.
    pub step: u64,
    /// Description of the damage, for users.
    pub reason: String,
}

/// A committed checkpoint, as reported to the worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointReport {
    /// Training step.
    pub step: u64,
    /// Absolute path.
    pub path: String,
    /// Size in bytes; 0 if unknown.
    pub size_bytes: u64,
    /// `algorithm:hex`; empty if unknown.
    pub digest: String,
    /// Milliseconds that the task took to write it; `None` if unknown.
    #[serde(default)]
    pub save_ms: Option<u64>,
}
