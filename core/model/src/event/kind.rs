//! Kinds of events.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::command::{
    AllocationBasis, Block, BlockTarget, Exit, GpuHealth, HostHealth, JobDefaults, StopCause,
    Victim,
};
use crate::desired::RestartReason;
use crate::event::{AccessChange, HealthNote, ReplicaChanged};
use crate::health::{Attribution, Component, Phase};
use crate::ids::{
    AttemptEpoch, GpuUuid, HostId, JobId, LeadershipEpoch, ReplicaId, TaskIndex, UnitIndex,
};
use crate::lifecycle::JobPhase;
use crate::spec::SuspendMode;
use crate::time::TimeMs;

/// Content of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// A replica started to lead.
    LeadershipStarted {
        /// The replica.
        replica: ReplicaId,
        /// Its leadership epoch, which fences its commands.
        epoch: LeadershipEpoch,
    },
    /// A job was accepted.
    JobSubmitted {
        /// The job.
        job: JobId,
        /// Name of the job.
        name: String,
        /// Owner of the job.
        user: String,
        /// Queue of the job.
        queue: String,
    },
    /// A user requested the cancellation of a job.
    JobCancelRequested {
        /// The job.
        job: JobId,
        /// User who issued the command.
        author: String,
        /// Reason.
        reason: String,
    },
    /// A job was suspended.
    JobSuspended {
        /// The job.
        job: JobId,
        /// User who issued the command.
        author: String,
        /// Reason.
        reason: String,
        /// Mode of the suspension.
        mode: SuspendMode,
    },
    /// A suspended job was resumed.
    JobResumed {
        /// The job.
        job: JobId,
        /// User who issued the command.
        author: String,
        /// Reason.
        reason: String,
    },
    /// A job finished.
    JobFinished {
        /// The job.
        job: JobId,
        /// Final phase.
        phase: JobPhase,
        /// Reason, for users; empty on success.
        reason: String,
    },
    /// A finished job was pruned.
    JobPruned {
        /// The job.
        job: JobId,
    },
    /// A unit received its complete allocation.
    AttemptPlaced {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// The attempt.
        epoch: AttemptEpoch,
        /// Number of the unit's attempt, counted from 1.
        number: u32,
        /// Hosts in task order, without duplicates.
        hosts: Vec<HostId>,
        /// Total number of allocated GPUs.
        gpus: u32,
        /// Training step of the checkpoint that it resumes from; `None` if it starts from scratch.
        resumes_step: Option<u64>,
    },
    /// A task has everything it needs, and waits for the rest of its gang.
    TaskPrepared {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// Epoch of the attempt.
        epoch: AttemptEpoch,
        /// The task.
        task: TaskIndex,
        /// The host.
        host: HostId,
    },
    /// All members of a gang are prepared and start.
    GangReleased {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// The attempt.
        epoch: AttemptEpoch,
        /// Its hosts in task order, without duplicates.
        hosts: Vec<HostId>,
        /// The rendezvous port.
        master_port: u16,
    },
    /// A task's process started.
    TaskStarted {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// Epoch of the attempt.
        epoch: AttemptEpoch,
        /// The task.
        task: TaskIndex,
        /// The host.
        host: HostId,
    },
    /// All tasks of the attempt are running.
    AttemptRunning {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// The attempt.
        epoch: AttemptEpoch,
    },
    /// A task's process ended.
    TaskExited {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// Epoch of the attempt.
        epoch: AttemptEpoch,
        /// The task.
        task: TaskIndex,
        /// The host.
        host: HostId,
        /// Exit of the process.
        exit: Exit,
    },
    /// A task was lost: its worker does not hold it, or its lease expired.
    TaskLost {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// Epoch of the attempt.
        epoch: AttemptEpoch,
        /// The task.
        task: TaskIndex,
        /// The host.
        host: HostId,
        /// Details.
        detail: String,
    },
    /// An attempt was asked to stop.
    AttemptStopping {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// The attempt.
        epoch: AttemptEpoch,
        /// Reason.
        cause: StopCause,
    },
    /// An attempt ended and released all its resources.
    AttemptEnded {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// The attempt.
        epoch: AttemptEpoch,
        /// Hosts with released resources, in task order, without duplicates.
        hosts: Vec<HostId>,
        /// Outcome, for users.
        detail: String,
        /// Attribution of the end; `None` if it succeeded, or before attribution was introduced.
        attribution: Option<Arc<Attribution>>,
    },
    /// A unit waits again.
    UnitRequeued {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// Reason for its next attempt.
        reason: RestartReason,
        /// Earliest time of the next attempt.
        not_before: TimeMs,
    },
    /// A unit's attempt failed and was restarted in place; the new placement is an event of its own.
    UnitRetried {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// The attempt that failed.
        epoch: AttemptEpoch,
        /// Number of such consecutive retries, counted from 1.
        retry: u32,
        /// Maximum number of consecutive retries in place.
        retries_max: u32,
    },
    /// A member of a running gang was asked to stop; the others continue.
    MemberLeaving {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// The gang's attempt.
        epoch: AttemptEpoch,
        /// The member.
        task: TaskIndex,
        /// The host.
        host: HostId,
        /// Reason.
        cause: StopCause,
    },
    /// A member of a gang is gone and released its resources; its place is vacant, and the others continue.
    MemberVacated {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// The gang's attempt.
        epoch: AttemptEpoch,
        /// The member.
        task: TaskIndex,
        /// The member's epoch.
        member: AttemptEpoch,
        /// Host of the task.
        host: HostId,
        /// Reason for the start of the replacement.
        reason: RestartReason,
        /// Whether it is charged to the job once the vacancy is filled.
        charged: bool,
        /// Earliest time at which the vacancy is filled.
        not_before: TimeMs,
        /// How the member ended, for users.
        detail: String,
    },
    /// A vacant member of a gang was replaced.
    MemberSwapped {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// The gang's attempt.
        epoch: AttemptEpoch,
        /// The member.
        task: TaskIndex,
        /// Epoch of the new member: reports of the previous one are ignored from now on.
        member: AttemptEpoch,
        /// Host of the task.
        host: HostId,
        /// Host of the previous member.
        from: HostId,
        /// Number of allocated GPUs.
        gpus: u32,
        /// Reason for the start.
        reason: RestartReason,
    },
    /// A host joined, its agent restarted, or its GPUs changed.
    HostRegistered {
        /// Id of the host.
        host: HostId,
        /// Name of the host.
        name: String,
        /// Number of its GPUs.
        gpus: u32,
    },
    /// The leader changed the health of a host.
    HostHealthChanged {
        /// The host.
        host: HostId,
        /// Name of the host.
        name: String,
        /// New health.
        health: HostHealth,
        /// Whether acknowledgements do not reach the host although its heartbeats arrive.
        one_way: bool,
    },
    /// A worker changed the health of a GPU.
    GpuHealthChanged {
        /// The GPU.
        gpu: GpuUuid,
        /// The host.
        host: HostId,
        /// Name of the host.
        host_name: String,
        /// New health.
        health: GpuHealth,
    },
    /// A host or GPU was taken out of placement.
    Blocked {
        /// Target of the block.
        target: BlockTarget,
        /// Reason, author and duration.
        block: Block,
    },
    /// A block was removed.
    Unblocked {
        /// Target of the block.
        target: BlockTarget,
        /// User who removed it (`expiry` if it expired).
        author: String,
    },
    /// A block of a host was planned, changed or cancelled.
    BlockPlanned {
        /// Target of the block.
        target: BlockTarget,
        /// User (`expiry` if its time passed while there was no leader).
        author: String,
        /// The planned block; `None` if it was cancelled.
        block: Option<Block>,
    },
    /// A task committed a checkpoint.
    CheckpointCommitted {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// Epoch of the attempt.
        epoch: AttemptEpoch,
        /// Training step.
        step: u64,
        /// Path of the checkpoint.
        path: String,
        /// Size in bytes.
        size_bytes: u64,
    },
    /// A task could not read a checkpoint; it is no longer offered to later attempts.
    CheckpointDamaged {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// The attempt that wrote it.
        epoch: AttemptEpoch,
        /// Training step.
        step: u64,
        /// Description of the damage.
        reason: String,
    },
    /// All dependencies of a job are fulfilled: it may be placed.
    JobEligible {
        /// The job.
        job: JobId,
    },
    /// The cluster defaults for jobs changed.
    JobDefaultsSet(JobDefaults),
    /// A replica was added, became a voter or a learner, or was removed.
    ReplicaChanged(ReplicaChanged),
    /// The health phase of a component changed. Actions of admins are reported as `Blocked` and `Unblocked`.
    HealthChanged {
        /// The component.
        component: Component,
        /// The host.
        host: HostId,
        /// The host's name.
        host_name: String,
        /// Previous phase.
        from: Phase,
        /// Current phase.
        to: Phase,
        /// Name of the health rule; empty for a change by time, a check or a repair.
        rule: String,
        /// What was observed or done.
        evidence: String,
    },
    /// Something about health that operators should know.
    HealthNoted {
        /// Kind of the note.
        note: HealthNote,
        /// Subject, by its display name.
        subject: String,
        /// Details.
        detail: String,
        /// The affected job, if any.
        job: Option<JobId>,
    },
    /// Older checkpoints of a unit are no longer kept.
    CheckpointsForgotten {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// Their training steps, ascending.
        steps: Vec<u64>,
        /// Whether their directories are removed.
        removed: bool,
    },
    /// A queue was created or changed.
    QueueSet {
        /// Name of the queue.
        name: String,
    },
    /// The queue tree was replaced.
    QueuesConfigured {
        /// User who issued the command.
        author: String,
        /// Queues that were added, changed or retired, ascending.
        queues: Vec<String>,
    },
    /// The topology was replaced.
    TopologySet {
        /// User who issued the command.
        author: String,
    },
    /// The levels of cells changed, because of the reports of workers.
    LevelsChanged {
        /// Names of the levels above hosts, largest first.
        above: Vec<String>,
        /// Names of the levels inside hosts, largest first.
        inside: Vec<String>,
    },
    /// Parts of a worker's reported topology are ignored, or all of it is accepted again.
    HostCellsDoubted {
        /// The host.
        host: HostId,
        /// Name of the host.
        name: String,
        /// Ignored parts with the reason, for operators; empty if everything is accepted.
        flaws: Vec<String>,
    },
    /// Resources were reserved for a waiting unit.
    UnitClaimed {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// Number of GPUs.
        gpus: u32,
        /// Attempts that were stopped for it.
        victims: Vec<Victim>,
        /// Expected time at which the resources are free.
        expected_at: Option<TimeMs>,
    },
    /// Attempts were stopped to continue elsewhere, so that a waiting unit has contiguous room.
    UnitsMoved {
        /// Job of the waiting unit.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// The moved attempts, ascending.
        moved: Vec<Victim>,
        /// GPU-milliseconds that this loses: work since the newest checkpoints, and restarts.
        cost_gpu_ms: u64,
        /// GPU-milliseconds that the waiting unit would have waited longer without the moves.
        gain_gpu_ms: u64,
    },
    /// A claim was given up.
    ClaimDropped {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// Reason.
        reason: String,
    },
    /// The allocation basis of an attempt changed.
    AllocationBasisChanged {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// Epoch of the attempt.
        epoch: AttemptEpoch,
        /// Allocation basis (guaranteed share, cells, opportunistic).
        allocation_basis: AllocationBasis,
    },
    /// Users or join tokens changed, or a worker was admitted.
    AccessChanged(AccessChange),
}
