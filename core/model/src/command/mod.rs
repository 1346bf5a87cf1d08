//! Every replicated command: the only way to change the cluster's state.
//!
//! Commands that only a leader may issue carry its leadership epoch; `apply` rejects those of an older epoch,
//! so late proposals of a deposed leader have no effect.

mod access;
mod block;
mod checkpoint;
mod claim;
mod config;
mod defaults;
mod exit;
mod health;
mod host;
mod member;
mod placement;
mod replicas;
mod stop;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use crate::command::access::AccessCommand;
pub use crate::command::block::{Block, BlockTarget, Planned};
pub use crate::command::checkpoint::{CheckpointCommand, CheckpointCommit};
pub use crate::command::claim::{ClaimSpec, Move, Moving, Victim};
pub use crate::command::config::ConfigCommand;
pub use crate::command::defaults::JobDefaults;
pub use crate::command::exit::{
    EXIT_DO_NOT_RESTART, EXIT_RUN_AGAIN, Exit, LastMeasurements, MISSING_FILE, MemoryUsage,
    NO_ACCOUNT, SignalSender,
};
pub use crate::command::health::HealthCommand;
pub use crate::command::host::HostCommand;
pub use crate::command::member::MemberSwap;
pub use crate::command::placement::{AllocationBasis, Placement, TaskPlacement};
pub use crate::command::replicas::{ReplicaMembership, ReplicaRecord};
pub use crate::command::stop::{StopCause, StopReason};
use crate::ids::{
    AttemptEpoch, GpuUuid, JobId, LeadershipEpoch, ReplicaId, RequestId, RequestKey, TaskIndex,
    UnitIndex,
};
use crate::spec::{JobSpec, Pipeline};
use crate::topology::ReportedTopology;

/// A replicated command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// A replica starts to lead; the revision of this command is its leadership epoch.
    LeadershipStarted {
        /// The new leader.
        replica: ReplicaId,
    },
    /// A user's submission.
    SubmitJob {
        /// Idempotency key: the same key refers to the same job.
        request: RequestKey,
        /// The job; already checked by `spec::validate`, which `apply` repeats.
        spec: Arc<JobSpec>,
    },
    /// A user's submission of several jobs as one object, all or none. It takes one revision for itself and
    /// one for each job.
    SubmitPipeline {
        /// Idempotency key: the same key refers to the same pipeline.
        request: RequestKey,
        /// The pipeline; already checked by `spec::validate_pipeline`, which `apply` repeats.
        pipeline: Arc<Pipeline>,
    },
    /// Cancels a job.
    CancelJob {
        /// Idempotency key.
        request: RequestKey,
        /// The job.
        job: JobId,
        /// User who issued the command.
        author: String,
        /// Reason; may be empty.
        reason: String,
    },
    /// Suspends a job.
    SuspendJob {
        /// Idempotency key.
        request: RequestKey,
        /// The job.
        job: JobId,
        /// User who issued the command.
        author: String,
        /// Reason; may be empty.
        reason: String,
    },
    /// Resumes a suspended job.
    ResumeJob {
        /// Idempotency key.
        request: RequestKey,
        /// The job.
        job: JobId,
        /// User who issued the command.
        author: String,
        /// Reason; may be empty.
        reason: String,
    },
    /// A command about a host or one of its GPUs.
    Host(HostCommand),
    /// Placement of one unit, all or nothing.
    Place(Placement),
    /// Placement of one replacement member of a gang that continues without it.
    SwapMember(MemberSwap),
    /// Outcome of one task, reported by its worker or concluded by the leader's clock.
    ReportTask(TaskReport),
    /// Starts a gang whose members are all prepared.
    ReleaseGang {
        /// The leader that detected it.
        leader: LeadershipEpoch,
        /// Job of the gang.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// Epoch of the attempt; an older epoch is rejected.
        epoch: AttemptEpoch,
    },
    /// Stops an attempt early; the reason decides what happens next.
    StopAttempt {
        /// The leader that decided it.
        leader: LeadershipEpoch,
        /// Job of the attempt.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// Epoch of the attempt; an older epoch is rejected.
        epoch: AttemptEpoch,
        /// Reason.
        reason: StopReason,
    },
    /// Takes a host or GPU out of placement; with `drain`, also moves its tasks away.
    Block {
        /// Idempotency key.
        request: RequestKey,
        /// Target of the block.
        target: BlockTarget,
        /// Reason, author and duration.
        block: Block,
        /// Whether it is rejected if no other host of the pool accepts work.
        spares_last: bool,
    },
    /// Removes the block of a host or GPU.
    Unblock {
        /// Idempotency key.
        request: RequestKey,
        /// Target of the block.
        target: BlockTarget,
        /// User who removes the block.
        author: String,
        /// Whether to cancel a planned block instead; a block in force stays.
        planned: bool,
    },
    /// Removes expired blocks, a bounded number at a time, oldest first.
    ExpireBlocks {
        /// The leader that proposed it.
        leader: LeadershipEpoch,
    },
    /// A command about a checkpoint.
    Checkpoint(CheckpointCommand),
    /// A command about queues, the topology, or the defaults of jobs.
    Config(ConfigCommand),
    /// Reserves resources for a waiting unit, and stops the attempts that it preempts, all or nothing.
    Claim(ClaimSpec),
    /// Gives up a unit's claim.
    DropClaim {
        /// The leader that decided it.
        leader: LeadershipEpoch,
        /// Job of the claim.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// Reason, for users.
        reason: String,
    },
    /// Changes the allocation basis of an attempt; nothing is stopped.
    SetAllocationBasis {
        /// The leader that decided it.
        leader: LeadershipEpoch,
        /// Job of the attempt.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// Epoch of the attempt; an older epoch is rejected.
        epoch: AttemptEpoch,
        /// Allocation basis (guaranteed share, cells, opportunistic).
        allocation_basis: AllocationBasis,
    },
    /// Records the replicas of the cluster.
    RecordReplicas {
        /// The leader that found the record outdated.
        leader: LeadershipEpoch,
        /// All replicas, voters and learners, ascending by id.
        replicas: Vec<ReplicaRecord>,
    },
    /// A command about health.
    Health(HealthCommand),
    /// A command about users or join tokens.
    Access(AccessCommand),
    /// Removes records past their retention (stored responses, finished jobs), a bounded number at a time.
    Prune {
        /// The leader that proposed it.
        leader: LeadershipEpoch,
    },
}

impl Command {
    /// Epoch of the leader that issues it; `None` for commands of users.
    #[must_use]
    pub const fn leader(&self) -> Option<LeadershipEpoch> {
        match self {
            Self::ReleaseGang { leader, .. }
            | Self::StopAttempt { leader, .. }
            | Self::ExpireBlocks { leader }
            | Self::DropClaim { leader, .. }
            | Self::SetAllocationBasis { leader, .. }
            | Self::RecordReplicas { leader, .. }
            | Self::Prune { leader } => Some(*leader),
            Self::Host(command) => Some(command.leader()),
            Self::Checkpoint(command) => Some(command.leader()),
            Self::Config(command) => command.leader(),
            Self::Health(command) => command.leader(),
            Self::Place(placement) => Some(placement.leader),
            Self::SwapMember(swap) => Some(swap.leader),
            Self::Claim(claiming) => Some(claiming.leader),
            Self::ReportTask(report) => Some(report.leader),
            Self::LeadershipStarted { .. }
            | Self::SubmitJob { .. }
            | Self::SubmitPipeline { .. }
            | Self::CancelJob { .. }
            | Self::SuspendJob { .. }
            | Self::ResumeJob { .. }
            | Self::Block { .. }
            | Self::Unblock { .. }
            | Self::Access(_) => None,
        }
    }

    /// Key of the client's request; `None` for commands of the leader.
    pub const fn request_mut(&mut self) -> Option<&mut RequestKey> {
        match self {
            Self::SubmitJob { request, .. }
            | Self::SubmitPipeline { request, .. }
            | Self::CancelJob { request, .. }
            | Self::SuspendJob { request, .. }
            | Self::ResumeJob { request, .. }
            | Self::Block { request, .. }
            | Self::Unblock { request, .. } => Some(request),
            Self::Config(command) => command.request_mut(),
            Self::Health(command) => command.request_mut(),
            Self::Access(command) => Some(command.request_mut()),
            Self::LeadershipStarted { .. }
            | Self::Host(_)
            | Self::Place(_)
            | Self::SwapMember(_)
            | Self::ReportTask(_)
            | Self::ReleaseGang { .. }
            | Self::StopAttempt { .. }
            | Self::ExpireBlocks { .. }
            | Self::Checkpoint(_)
            | Self::Claim(_)
            | Self::DropClaim { .. }
            | Self::SetAllocationBasis { .. }
            | Self::RecordReplicas { .. }
            | Self::Prune { .. } => None,
        }
    }
}

/// Registration of a host by its agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRegistration {
    /// Host name, unique in the cluster.
    pub name: String,
    /// Address at which tasks of other hosts reach this one (`MASTER_ADDR`).
    pub address: String,
    /// Random identity stored in the worker's data directory; distinguishes two workers of the same name.
    pub worker_id: RequestId,
    /// Number of agent starts with this data directory.
    pub incarnation: u64,
    /// Boot id of the kernel: a changed id means that all processes are gone.
    pub boot_id: String,
    /// Its GPUs in index order.
    pub gpus: Vec<GpuDescription>,
    /// Thousandths of CPUs that tasks may use.
    pub cpus_milli: u32,
    /// Memory that tasks may use, in MiB.
    pub memory_mib: u64,
    /// User-defined labels.
    pub labels: BTreeMap<String, String>,
    /// Location of the host and its GPUs, as far as its worker knows it.
    pub reported: ReportedTopology,
}

/// A GPU as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuDescription {
    /// UUID of the GPU.
    pub uuid: GpuUuid,
    /// Index on the host, for operators.
    pub index: u32,
    /// Model name reported by the driver.
    pub model: String,
    /// Memory in MiB.
    pub memory_mib: u64,
}

/// Health of a host, as the leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HostHealth {
    /// Its heartbeats arrive.
    Up,
    /// Heartbeats are missing: nothing new is placed there.
    Suspect,
    /// Its lease has expired.
    Lost,
}

/// Health of a GPU, as its worker sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GpuHealth {
    /// Usable.
    Healthy,
    /// Unusable; attempts on it are restarted elsewhere.
    Faulted {
        /// A short machine-readable signal: `xid-79`, `missing`, `ecc-uncorrectable`.
        signal: String,
        /// The worker's observation, for operators.
        detail: String,
    },
}

impl GpuHealth {
    /// Signal of a GPU that is held by a task that cannot be killed.
    pub const TASK_STUCK: &str = "task-stuck";

    /// Whether a task that cannot be killed holds the GPU.
    #[must_use]
    pub fn is_task_stuck(&self) -> bool {
        matches!(self, Self::Faulted { signal, .. } if signal == Self::TASK_STUCK)
    }
}

/// Outcome of one task of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskReport {
    /// The leader that received or concluded it.
    pub leader: LeadershipEpoch,
    /// Job of the task.
    pub job: JobId,
    /// Index of the unit within its job.
    pub unit: UnitIndex,
    /// Epoch of the attempt.
    pub epoch: AttemptEpoch,
    /// The task.
    pub task: TaskIndex,
    /// The outcome.
    pub outcome: TaskOutcome,
}

/// Outcomes of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskOutcome {
    /// Its process is running.
    Started,
    /// Its process ended.
    Exited(Exit),
    /// Its worker no longer holds it and does not know how it ended (never started, host rebooted).
    Gone {
        /// Details from the worker or the leader.
        detail: String,
    },
    /// Its worker was silent for longer than the task's lease.
    Fenced,
    /// It has everything it needs, and waits for the rest of its gang.
    Prepared {
        /// The port reserved for the gang's rendezvous; only on rank 0's host.
        master_port: Option<u16>,
    },
}
