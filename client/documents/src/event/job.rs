//! Facts of events about jobs.

use muster_proto::v1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attempt::{AllocationBasis, AttemptName, Exit, RestartReason, describe_stop};
use crate::attribution::Attribution;
use crate::instant::Instant;
use crate::job::JobPhase;

string_enum! {
    /// What becomes of the allocation of a suspended job.
    pub enum SuspendMode from v1::SuspendMode {
        Keep "keep",
        Release "release",
    }
}

documents! {
    /// A job was accepted.
    pub struct JobSubmitted from v1::JobSubmitted {
        name: String,
        user: String,
        queue: String,
    }

    /// A user cancelled a job.
    pub struct JobCancelRequested from v1::JobCancelRequested {
        author: String,
        reason: String,
    }

    /// A job was suspended.
    pub struct JobSuspended from v1::JobSuspended {
        author: String,
        reason: String,
        mode: SuspendMode,
    }

    /// A suspended job was resumed.
    pub struct JobResumed from v1::JobResumed {
        author: String,
        reason: String,
    }

    /// A job reached its end.
    pub struct JobFinished from v1::JobFinished {
        phase: JobPhase,
        reason: String,
    }

    /// A unit received its allocation, whole.
    pub struct AttemptPlaced from v1::AttemptPlaced {
        unit: u32,
        epoch: u64,
        number: u32,
        host_ids: Vec<u32>,
        gpus: u32,
        /// Training step of the checkpoint from which it resumes.
        resumes_step: Option<u64>,
    }

    /// All members of a gang are prepared: they start.
    pub struct GangReleased from v1::GangReleased {
        unit: u32,
        epoch: u64,
        host_ids: Vec<u32>,
        master_port: u32,
    }

    /// Every task of an attempt runs.
    pub struct AttemptRunning from v1::AttemptRunning {
        unit: u32,
        epoch: u64,
    }

    /// An attempt ended and released its resources.
    pub struct AttemptEnded from v1::AttemptEnded {
        unit: u32,
        epoch: u64,
        host_ids: Vec<u32>,
        detail: String,
        attribution: Option<Attribution> = attribution,
    }

    /// A task committed a checkpoint.
    pub struct CheckpointCommitted from v1::CheckpointCommitted {
        unit: u32,
        epoch: u64,
        step: u64,
        path: String,
        size_bytes: u64,
    }

    /// A task could not read a checkpoint.
    pub struct CheckpointDamaged from v1::CheckpointDamaged {
        unit: u32,
        epoch: u64,
        step: u64,
        reason: String,
    }

    /// Older checkpoints of a unit are no longer kept.
    pub struct CheckpointsForgotten from v1::CheckpointsForgotten {
        unit: u32,
        steps: Vec<u64>,
        /// Whether their folders are removed.
        removed: bool,
    }

    /// A unit waits again.
    pub struct UnitRequeued from v1::UnitRequeued {
        unit: u32,
        reason: RestartReason,
        not_before: Option<Instant> = not_before_ms,
    }

    /// A unit's attempt failed and was restarted in place at once.
    pub struct UnitRetried from v1::UnitRetried {
        unit: u32,
        epoch: u64,
        retry: u32,
        retries_max: u32,
    }

    /// A member of a gang is gone, and the others continue.
    pub struct MemberVacated from v1::MemberVacated {
        unit: u32,
        epoch: u64,
        task: u32,
        member_epoch: u64,
        host_id: u32,
        reason: RestartReason,
        charged: bool,
        not_before: Instant = not_before_ms,
        detail: String,
    }

    /// A member of a gang was replaced.
    pub struct MemberSwapped from v1::MemberSwapped {
        unit: u32,
        epoch: u64,
        task: u32,
        member_epoch: u64,
        host_id: u32,
        from_host_id: u32,
        gpus: u32,
        reason: RestartReason,
    }

    /// Resources were reserved for a waiting unit.
    pub struct UnitClaimed from v1::UnitClaimed {
        unit: u32,
        gpus: u32,
        victims: Vec<AttemptName>,
        expected_at: Option<Instant> = expected_at_ms,
    }

    /// Attempts were stopped and moved, so that a waiting unit gets contiguous resources.
    pub struct UnitsMoved from v1::UnitsMoved {
        unit: u32,
        moved: Vec<AttemptName>,
        cost_gpu_ms: u64,
        gain_gpu_ms: u64,
    }

    /// A claim was dropped.
    pub struct ClaimDropped from v1::ClaimDropped {
        unit: u32,
        reason: String,
    }

    /// The allocation basis of an attempt changed.
    pub struct AllocationBasisChanged from v1::AllocationBasisChanged {
        unit: u32,
        epoch: u64,
        allocation_basis: Option<AllocationBasis> = allocation_basis,
    }

    /// A task is prepared, and waits for the rest of its gang.
    pub struct TaskPrepared from v1::TaskPrepared {
        unit: u32,
        epoch: u64,
        task: u32,
        host_id: u32,
    }

    /// A task's process runs.
    pub struct TaskStarted from v1::TaskStarted {
        unit: u32,
        epoch: u64,
        task: u32,
        host_id: u32,
    }

    /// A task was lost: its worker forgot it, or its lease ran out.
    pub struct TaskLost from v1::TaskLost {
        unit: u32,
        epoch: u64,
        task: u32,
        host_id: u32,
        detail: String,
    }
}

/// All dependencies of a job have ended as required.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobEligible {}

impl From<v1::JobEligible> for JobEligible {
    fn from(_: v1::JobEligible) -> Self {
        Self {}
    }
}

/// A finished job was removed from the state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct JobPruned {}

impl From<v1::JobPruned> for JobPruned {
    fn from(_: v1::JobPruned) -> Self {
        Self {}
    }
}

/// An attempt was ordered to stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AttemptStopping {
    pub unit: u32,
    pub epoch: u64,
    /// For display.
    pub reason: String,
    /// The cause alone: the job for which room is made, the requesting user and reason, the failed task, the rule and
    /// its evidence, or the limit. Empty if the request is from an older version.
    pub detail: String,
}

impl From<v1::AttemptStopping> for AttemptStopping {
    fn from(event: v1::AttemptStopping) -> Self {
        Self {
            unit: event.unit,
            epoch: event.epoch,
            reason: event.reason.as_ref().map(describe_stop).unwrap_or_default(),
            detail: event.reason.unwrap_or_default().detail,
        }
    }
}

/// A member of a running gang was ordered to stop; the others continue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MemberLeaving {
    pub unit: u32,
    pub epoch: u64,
    pub task: u32,
    pub host_id: u32,
    /// For display.
    pub reason: String,
    /// As of `attempt_stopping`.
    pub detail: String,
}

impl From<v1::MemberLeaving> for MemberLeaving {
    fn from(event: v1::MemberLeaving) -> Self {
        Self {
            unit: event.unit,
            epoch: event.epoch,
            task: event.task,
            host_id: event.host_id,
            reason: event.reason.as_ref().map(describe_stop).unwrap_or_default(),
            detail: event.reason.unwrap_or_default().detail,
        }
    }
}

/// A task's process ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskExited {
    pub unit: u32,
    pub epoch: u64,
    pub task: u32,
    pub host_id: u32,
    /// The end, for display.
    pub exit: String,
}

impl From<v1::TaskExited> for TaskExited {
    fn from(event: v1::TaskExited) -> Self {
        let exit = event.exit.map(|exit| Exit::from(exit).text());
        Self {
            unit: event.unit,
            epoch: event.epoch,
            task: event.task,
            host_id: event.host_id,
            exit: exit.unwrap_or_default(),
        }
    }
}
