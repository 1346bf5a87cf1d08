//! Every replicated command: the only way the cluster's memory changes.
//!
//! Commands that only a leader may give carry its leadership epoch; `apply` refuses those of an older
//! one, so nothing that a deposed leader still proposes takes effect.

mod access;
mod block;
mod checkpoint;
mod claim;
mod defaults;
mod exit;
mod health;
mod member;
mod placement;
mod replicas;
mod stop;

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use crate::command::access::AccessCommand;
pub use crate::command::block::{Block, BlockTarget, Planned};
pub use crate::command::checkpoint::CheckpointCommit;
pub use crate::command::claim::{Claiming, Move, Moving, Victim};
pub use crate::command::defaults::JobDefaults;
pub use crate::command::exit::{
    EXIT_DO_NOT_RESTART, EXIT_RUN_AGAIN, Exit, LastSeen, MemoryEnd, NO_ACCOUNT, NOT_THERE,
    SignalSender,
};
pub use crate::command::health::HealthCommand;
pub use crate::command::member::MemberSwap;
pub use crate::command::placement::{Placement, Standing, TaskPlacement};
pub use crate::command::replicas::{ReplicaRecord, ReplicaStanding};
pub use crate::command::stop::{StopCause, StopReason};
use crate::ids::{
    AttemptEpoch, GpuUuid, HostId, JobId, LeadershipEpoch, ReplicaId, RequestId, TaskIndex,
    UnitIndex,
};
use crate::quota::QueueTree;
use crate::spec::{JobSpec, Pipeline};
use crate::topology::{LearntTree, Topology};

/// A replicated command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// A replica begins to lead; the revision of this command is its leadership epoch.
    LeaderBegan {
        /// The new leader.
        replica: ReplicaId,
    },
    /// A user's submission.
    SubmitJob {
        /// The same request id is the same job.
        request: RequestId,
        /// What to run; already valid by `spec::validate`, which `apply` checks again.
        spec: Arc<JobSpec>,
    },
    /// A user's submission of several jobs as one object: all of them or none. It takes a revision for itself and one for
    /// every job. Since command format 4.
    SubmitPipeline {
        /// The same request id is the same pipeline.
        request: RequestId,
        /// What to run; already valid by `spec::validate_pipeline`, which `apply` checks again.
        pipeline: Arc<Pipeline>,
    },
    /// Somebody asks for a job's end.
    CancelJob {
        /// Idempotency key.
        request: RequestId,
        /// Which job.
        job: JobId,
        /// Who asks.
        author: String,
        /// Why; may be empty.
        reason: String,
    },
    /// Somebody suspends a job. Since command format 4.
    SuspendJob {
        /// Idempotency key.
        request: RequestId,
        /// Which job.
        job: JobId,
        /// Who asks.
        author: String,
        /// Why; may be empty.
        reason: String,
    },
    /// Somebody lets a suspended job go on. Since command format 4.
    ResumeJob {
        /// Idempotency key.
        request: RequestId,
        /// Which job.
        job: JobId,
        /// Who asks.
        author: String,
        /// Why; may be empty.
        reason: String,
    },
    /// A worker's agent presents its host.
    RegisterHost {
        /// The leader that received it.
        leader: LeadershipEpoch,
        /// What the host is and has.
        registration: Arc<HostRegistration>,
    },
    /// The leader saw a host fall silent, go or come back.
    SetHostHealth {
        /// The leader that saw it.
        leader: LeadershipEpoch,
        /// Which host.
        host: HostId,
        /// What it is now.
        health: HostHealth,
        /// Whether it is so although its beats arrive: acknowledgements do not reach it. Since command format 4.
        one_way: bool,
    },
    /// A worker reported a change in a GPU's health.
    SetGpuHealth {
        /// The leader that received it.
        leader: LeadershipEpoch,
        /// The host that reported it.
        host: HostId,
        /// Which GPU.
        gpu: GpuUuid,
        /// What it is now.
        health: GpuHealth,
    },
    /// The planner's decision for one unit: all of it or nothing.
    Place(Placement),
    /// The planner's decision for one member of a gang that goes on without it. Since command format 4.
    SwapMember(MemberSwap),
    /// What became of one task, by its worker's word or by the leader's clock.
    ReportTask(TaskReport),
    /// All members of a gang are prepared: they begin. Since command format 4.
    ReleaseGang {
        /// The leader that saw it.
        leader: LeadershipEpoch,
        /// Whose gang.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// Which attempt; an older epoch is refused.
        epoch: AttemptEpoch,
    },
    /// Ends an attempt early; what happens next follows from the reason.
    StopAttempt {
        /// The leader that decided it.
        leader: LeadershipEpoch,
        /// Whose attempt.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// Which attempt; an older epoch is refused.
        epoch: AttemptEpoch,
        /// Why.
        reason: StopReason,
    },
    /// Takes a host or GPU out of placement; with `drain`, moves its tasks away too.
    Block {
        /// Idempotency key.
        request: RequestId,
        /// What to take out.
        target: BlockTarget,
        /// Why, by whom, until when.
        block: Block,
        /// Whether it is refused if no other host of the pool takes work.
        spares_last: bool,
    },
    /// Lets a host or GPU back in.
    Unblock {
        /// Idempotency key.
        request: RequestId,
        /// What to let in.
        target: BlockTarget,
        /// Who lets it in.
        author: String,
        /// Whether it is a planned block that is cancelled; what is in force stays.
        planned: bool,
    },
    /// Lets go the blocks whose expiry has passed, a bounded number at a time, oldest first.
    ExpireBlocks {
        /// The leader that noticed.
        leader: LeadershipEpoch,
    },
    /// A task committed a checkpoint.
    CommitCheckpoint {
        /// The leader that received it.
        leader: LeadershipEpoch,
        /// Whose checkpoint.
        job: JobId,
        /// The unit whose attempt wrote it.
        unit: UnitIndex,
        /// What was saved; refused if its epoch is not the unit's current attempt.
        checkpoint: CheckpointCommit,
    },
    /// A task could not read a checkpoint: it is not offered to later attempts any more. Since command format 4.
    SpoilCheckpoint {
        /// The leader that received it.
        leader: LeadershipEpoch,
        /// Whose checkpoint.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// The unit's current attempt, which found it out; any other is refused.
        reporter: AttemptEpoch,
        /// The attempt that wrote it.
        epoch: AttemptEpoch,
        /// Its step.
        step: u64,
        /// What is wrong with it, for people.
        reason: String,
    },
    /// Creates a queue or changes one.
    SetQueue {
        /// Idempotency key.
        request: RequestId,
        /// Its name.
        name: String,
        /// Jobs that may be unfinished in it at a time.
        live_jobs_max: u64,
    },
    /// Replaces the tree of queues. Nothing running is stopped by it; a queue that is not named any more takes no
    /// new jobs and goes when its last one has ended.
    ConfigureQueues {
        /// Idempotency key.
        request: RequestId,
        /// Who changes it.
        author: String,
        /// All queues.
        tree: Arc<QueueTree>,
    },
    /// Replaces the topology.
    SetTopology {
        /// Idempotency key.
        request: RequestId,
        /// Who changes it.
        author: String,
        /// All cells.
        topology: Arc<Topology>,
    },
    /// Reserves resources for a waiting unit, and stops the attempts that it preempts: all of it or nothing.
    Claim(Claiming),
    /// Gives up a unit's claim.
    DropClaim {
        /// The leader that decided it.
        leader: LeadershipEpoch,
        /// Whose claim.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// Why, for people.
        reason: String,
    },
    /// Changes on what ground an attempt holds its resources; nothing is stopped by it.
    SetStanding {
        /// The leader that decided it.
        leader: LeadershipEpoch,
        /// Whose attempt.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// Which attempt; an older epoch is refused.
        epoch: AttemptEpoch,
        /// The new ground.
        standing: Standing,
    },
    /// Sets what counts for jobs that say nothing themselves. Since command format 4.
    SetJobDefaults {
        /// The leader that found none set.
        leader: LeadershipEpoch,
        /// What counts from now on.
        defaults: JobDefaults,
    },
    /// Writes down which replicas there are. Since command format 4.
    RecordReplicas {
        /// The leader that found others written down.
        leader: LeadershipEpoch,
        /// All replicas, voters and learners, ascending by id.
        replicas: Vec<ReplicaRecord>,
    },
    /// What is found, decided, repaired and configured about health. Since command format 4.
    Health(HealthCommand),
    /// Who may do what. Since command format 4.
    Access(AccessCommand),
    /// Forgets what has outlived its keeping (answers, finished jobs), a bounded number at a time.
    Prune {
        /// The leader that noticed.
        leader: LeadershipEpoch,
    },
}

impl Command {
    /// The leadership that gives it; `None` for those that users give.
    #[must_use]
    pub const fn leader(&self) -> Option<LeadershipEpoch> {
        match self {
            Self::RegisterHost { leader, .. }
            | Self::SetHostHealth { leader, .. }
            | Self::SetGpuHealth { leader, .. }
            | Self::ReleaseGang { leader, .. }
            | Self::StopAttempt { leader, .. }
            | Self::ExpireBlocks { leader }
            | Self::CommitCheckpoint { leader, .. }
            | Self::SpoilCheckpoint { leader, .. }
            | Self::DropClaim { leader, .. }
            | Self::SetStanding { leader, .. }
            | Self::SetJobDefaults { leader, .. }
            | Self::RecordReplicas { leader, .. }
            | Self::Prune { leader } => Some(*leader),
            Self::Health(command) => command.leader(),
            Self::Place(placement) => Some(placement.leader),
            Self::SwapMember(swap) => Some(swap.leader),
            Self::Claim(claiming) => Some(claiming.leader),
            Self::ReportTask(report) => Some(report.leader),
            Self::LeaderBegan { .. }
            | Self::SubmitJob { .. }
            | Self::SubmitPipeline { .. }
            | Self::CancelJob { .. }
            | Self::SuspendJob { .. }
            | Self::ResumeJob { .. }
            | Self::Block { .. }
            | Self::Unblock { .. }
            | Self::SetQueue { .. }
            | Self::ConfigureQueues { .. }
            | Self::SetTopology { .. }
            | Self::Access(_) => None,
        }
    }
}

/// A host as its agent presents it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRegistration {
    /// Host name, unique in the cluster.
    pub name: String,
    /// Where tasks of other hosts reach this one (`MASTER_ADDR`).
    pub address: String,
    /// Random identity kept in the worker's data directory: two workers of one name differ in it.
    pub worker_id: RequestId,
    /// Counts the agent's starts on that data directory.
    pub incarnation: u64,
    /// The kernel's boot id: another one means that every process is gone.
    pub boot_id: String,
    /// Its GPUs in index order.
    pub gpus: Vec<GpuDescription>,
    /// Thousandths of CPUs that tasks may use.
    pub cpus_milli: u32,
    /// Memory that tasks may use, in MiB.
    pub memory_mib: u64,
    /// Free labels.
    pub labels: BTreeMap<String, String>,
    /// Where the host and its GPUs lie, as far as its worker knows.
    pub learnt: LearntTree,
}

/// A GPU as its driver describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuDescription {
    /// Its identity.
    pub uuid: GpuUuid,
    /// Index on the host, for people.
    pub index: u32,
    /// Model, as the driver names it.
    pub model: String,
    /// Memory in MiB.
    pub memory_mib: u64,
}

/// How the leader sees a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum HostHealth {
    /// Its heartbeats arrive.
    Up,
    /// Some are missing: nothing new is placed there.
    Suspect,
    /// Its lease is over.
    Lost,
}

/// How a worker sees a GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GpuHealth {
    /// Fit for work.
    Healthy,
    /// Unfit; attempts on it are restarted elsewhere.
    Faulted {
        /// A short machine-readable signal: `xid-79`, `missing`, `ecc-uncorrectable`.
        signal: String,
        /// What the worker saw, for people.
        detail: String,
    },
}

impl GpuHealth {
    /// Signal of a GPU that a task holds which cannot be killed.
    pub const TASK_STUCK: &str = "task-stuck";

    /// Whether a task holds the GPU that cannot be killed.
    #[must_use]
    pub fn is_task_stuck(&self) -> bool {
        matches!(self, Self::Faulted { signal, .. } if signal == Self::TASK_STUCK)
    }
}

/// What became of one task of one attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskReport {
    /// The leader that received or concluded it.
    pub leader: LeadershipEpoch,
    /// Whose task.
    pub job: JobId,
    /// Its unit.
    pub unit: UnitIndex,
    /// Its attempt.
    pub epoch: AttemptEpoch,
    /// The task.
    pub task: TaskIndex,
    /// What became of it.
    pub outcome: TaskOutcome,
}

/// What can become of a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskOutcome {
    /// Its process runs.
    Started,
    /// Its process ended.
    Exited(Exit),
    /// Its worker holds it no longer and does not know how it ended (never started, host rebooted).
    Gone {
        /// What the worker or the leader knows about it.
        detail: String,
    },
    /// Its worker was silent for longer than the task's lease.
    Fenced,
    /// All that it needs is there, and it waits for the rest of its gang. Since command format 4.
    Prepared {
        /// The port that its host keeps free for the gang to meet on; only rank 0's host does.
        master_port: Option<u16>,
    },
}
