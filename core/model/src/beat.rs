//! What a worker tells the leader: heartbeats, and its state when that changed.

use serde::{Deserialize, Serialize};

use crate::command::{Exit, GpuHealth};
use crate::health::{Finding, Order};
use crate::ids::{AttemptEpoch, GpuUuid, LeadershipEpoch, Revision, TaskKey, UnitIndex};

/// A heartbeat. Never in the log: it touches the leader's memory only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beat {
    /// Counts from 1 within a stream; the acknowledgement names it.
    pub sequence: u64,
    /// Newest acknowledged sequence of this stream: shows the leader a one-way link.
    pub acknowledged: u64,
    /// Newest leadership that the worker has accepted.
    pub leader: LeadershipEpoch,
    /// Revision of the desired state that the worker works on.
    pub desired_revision: Revision,
    /// The worker's whole state: on every new stream, after a change, and now and then.
    pub status: Option<WorkerStatus>,
}

/// Everything a worker knows that the leader must know too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Every task it has not been told to forget.
    pub tasks: Vec<TaskStatus>,
    /// Every GPU with its health.
    pub gpus: Vec<(GpuUuid, GpuHealth)>,
    /// What it found and nobody acknowledged yet, in the order of their numbers, at most `FINDINGS_PER_REPORT_MAX`.
    #[serde(default)]
    pub findings: Vec<Finding>,
    /// Repairs and checks that came to their end, until they are not ordered any more.
    #[serde(default)]
    pub health_work: Vec<WorkDone>,
}

/// What became of a repair or a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkDone {
    /// What was ordered.
    pub order: Order,
    /// Whether it did what it should.
    pub passed: bool,
    /// What was done or seen, for people.
    pub evidence: String,
}

/// What a worker knows of one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskStatus {
    /// Which task.
    pub key: TaskKey,
    /// Its unit.
    pub unit: UnitIndex,
    /// Its attempt.
    pub epoch: AttemptEpoch,
    /// Where it stands.
    pub phase: WorkerTaskPhase,
    /// The newest checkpoints that the task committed to its worker, oldest first, at most `CHECKPOINTS_TOLD_MAX`: all
    /// that the replicated state may not have yet, so that several between two beats are all committed.
    pub checkpoints: Vec<CheckpointReport>,
    /// The training step that the task was last said to be at; none if it never said. For people: only a checkpoint
    /// that is committed counts.
    pub progress_step: Option<u64>,
    /// Checkpoints of earlier attempts that the task could not read, at most `SPOILS_TOLD_MAX`.
    pub spoiled: Vec<SpoilReport>,
}

/// Where a task stands on its worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkerTaskPhase {
    /// Journalled; its supervisor is being started.
    Starting,
    /// Its process runs.
    Running,
    /// It was asked to stop and has not ended yet.
    Stopping,
    /// It ended.
    Exited(Exit),
    /// The worker knows that it ran once, but not how it ended (its supervisor vanished, the host rebooted).
    Gone {
        /// What is known.
        detail: String,
    },
    /// All that it needs is there, and it waits for the rest of its gang.
    Prepared {
        /// The port that this host keeps free for the gang to meet on, if the task is rank 0.
        master_port: Option<u16>,
    },
}

/// A checkpoint of an earlier attempt that a task could not read, as its worker heard of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpoilReport {
    /// Its step.
    pub step: u64,
    /// What is wrong with it, for people.
    pub reason: String,
}

/// A checkpoint as its worker heard of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointReport {
    /// Training step.
    pub step: u64,
    /// Absolute path.
    pub path: String,
    /// Bytes, 0 if not told.
    pub size_bytes: u64,
    /// `algorithm:hex`, empty if not told.
    pub digest: String,
    /// Milliseconds that the task took to write it; none if not told.
    #[serde(default)]
    pub save_ms: Option<u64>,
}
