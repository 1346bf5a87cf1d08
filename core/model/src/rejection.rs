//! Deterministic rejections: the only errors that may leave `apply`.
//!
//! Each names the object and the way out. I/O errors and corruption are never among them: those stop the
//! replica.

use serde::{Deserialize, Serialize};

use crate::ids::{
    AttemptEpoch, GpuUuid, HostId, JobId, LeadershipEpoch, PipelineId, TaskIndex, UnitIndex,
};
use crate::lifecycle::{JobPhase, TaskPhase, UnitPhase};
use crate::spec::Violation;

/// Reason why a command had no effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Rejection {
    /// The command comes from a deposed leader.
    #[error("leadership epoch {given} is over; the current one is {current}")]
    StaleLeader {
        /// Epoch of the command.
        given: LeadershipEpoch,
        /// Epoch of the state.
        current: LeadershipEpoch,
    },
    /// The component does not exist, or does not belong to the reporting host.
    #[error("{0} does not exist, or does not belong to the reporting host")]
    UnknownComponent(String),
    /// A repair or a check cannot start or finish now.
    #[error("{component}: {why}")]
    HealthWork {
        /// The component.
        component: String,
        /// Reason.
        why: String,
    },
    /// The pool has no tripped breaker.
    #[error("the breaker of pool `{0}` is not tripped; `muster health list` shows those that are")]
    BreakerWhole(String),
    /// A user of this name already exists.
    #[error(
        "user `{0}` exists; `muster user rotate {0}` replaces its token; to change its role, \
         remove it first (`muster user remove {0}`)"
    )]
    UserExists(String),
    /// No such user.
    #[error("user `{0}` does not exist; `muster user list` shows those that do")]
    UnknownUser(String),
    /// A join token of this name already exists.
    #[error("join token `{0}` exists; make one of another name")]
    JoinTokenExists(String),
    /// The join token does not exist, or its secret is wrong.
    #[error("join token `{0}` does not exist; `muster worker token list` shows those that do")]
    UnknownJoinToken(String),
    /// The join token is expired or used up.
    #[error("join token `{id}` {why}; ask an admin for a new one (`muster worker token create`)")]
    JoinTokenSpent {
        /// Name of the token.
        id: String,
        /// Reason, as in `expired 20 s ago`.
        why: String,
    },
    /// The join token does not admit this host.
    #[error(
        "join token `{id}` is for hosts named `{pattern}`, not for `{host}`: \
         start the worker with such a `name`, or use another token"
    )]
    JoinTokenOfOthers {
        /// Name of the token.
        id: String,
        /// Pattern of the admitted host names.
        pattern: String,
        /// Name of the worker's host.
        host: String,
    },
    /// A host of this name is up with a certificate of its own.
    #[error(
        "host `{0}` is up, with a certificate of its own: \
         stop its worker and try again when it is lost, or choose another `name`"
    )]
    HostIsUp(String),
    /// The specification violates rules.
    #[error("the job is not valid: {}", join(.0))]
    InvalidSpec(Vec<Violation>),
    /// The request id was used before for a different request.
    #[error("request id was used before for another kind of request; choose a new one")]
    RequestReused,
    /// No such queue.
    #[error("queue `{0}` does not exist; `muster queue list` shows those that do")]
    UnknownQueue(String),
    /// The queue has reached its limit of unfinished jobs.
    #[error("queue `{queue}` holds its limit of {limit} unfinished jobs (live_jobs_max)")]
    QueueFull {
        /// Name of the queue.
        queue: String,
        /// Its limit.
        limit: u64,
    },
    /// No such job (it may have been pruned).
    #[error("job {0} does not exist, or ended and was pruned")]
    UnknownJob(JobId),
    /// No such pipeline (its jobs may have been pruned).
    #[error("pipeline {0} does not exist, or ended and was pruned")]
    UnknownPipeline(PipelineId),
    /// The job has already finished.
    #[error("job {job} has already ended: {phase}")]
    JobFinished {
        /// The job.
        job: JobId,
        /// Final phase of the job.
        phase: JobPhase,
    },
    /// No such unit in the job.
    #[error("job {job} has no unit {unit}")]
    UnknownUnit {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
    },
    /// The command does not apply to the unit's phase.
    #[error("unit {unit} of job {job} is {phase:?}")]
    UnitPhase {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// Phase of the unit.
        phase: UnitPhase,
    },
    /// The attempt is not the unit's current one.
    #[error("attempt {given} of unit {unit} of job {job} is not the current one")]
    StaleAttempt {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// Epoch of the command.
        given: AttemptEpoch,
    },
    /// The attempt has no such task.
    #[error("attempt {epoch} of job {job} has no task {task}")]
    UnknownTask {
        /// The job.
        job: JobId,
        /// Epoch of the attempt.
        epoch: AttemptEpoch,
        /// The task.
        task: TaskIndex,
    },
    /// The task cannot change from its phase to the reported one.
    #[error("task {task} of job {job} cannot go from {from:?} to {to:?}")]
    TaskTransition {
        /// The job.
        job: JobId,
        /// The task.
        task: TaskIndex,
        /// Phase of the task.
        from: TaskPhase,
        /// The reported phase.
        to: TaskPhase,
    },
    /// The placement does not match the unit's tasks.
    #[error("the placement of unit {unit} of job {job} does not fit its tasks: {detail}")]
    PlacementShape {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// Description of the mismatch.
        detail: String,
    },
    /// A host cannot accept its part of the placement.
    #[error("host {host} cannot take the placement: {detail}")]
    PlacementInfeasible {
        /// The host.
        host: HostId,
        /// Description of the missing resource or condition.
        detail: String,
    },
    /// No such host.
    #[error("host `{0}` does not exist; `muster host list` shows those that do")]
    UnknownHost(String),
    /// No such GPU.
    #[error("{0} does not exist; `muster gpu list` shows those that do")]
    UnknownGpu(GpuUuid),
    /// Another live worker holds this host name.
    #[error(
        "host `{0}` is held by another worker that is alive; give this one another name, or stop the other"
    )]
    HostIdentityTaken(String),
    /// The agent's incarnation is older than one seen before.
    #[error("host `{name}` was registered by incarnation {current}; {given} is older")]
    StaleIncarnation {
        /// Host name.
        name: String,
        /// Incarnation of the command.
        given: u64,
        /// Newest incarnation seen.
        current: u64,
    },
    /// Two hosts present the same GPU.
    #[error("{gpu} is presented by host `{holder}` already; a GPU belongs to one host")]
    GpuClaimedTwice {
        /// The GPU.
        gpu: GpuUuid,
        /// Name of the host that has it.
        holder: String,
    },
    /// The registration violates a rule.
    #[error("the registration is not valid: {0}")]
    InvalidRegistration(Violation),
    /// An argument exceeds a limit or is missing.
    #[error("the request is not valid: {0}")]
    InvalidRequest(Violation),
    /// The target is not blocked.
    #[error("{0} is not blocked")]
    NotBlocked(String),
    /// Its pool would have no host left.
    #[error(
        "host `{host}` is the last of pool `{pool}` that takes work; give the pool another host, or force it"
    )]
    LastHost {
        /// Name of the host.
        host: String,
        /// Name of the pool.
        pool: String,
    },
    /// There is no planned block to cancel.
    #[error("no block of {0} is planned")]
    NothingPlanned(String),
    /// The configuration violates rules, or the cluster cannot honour it.
    #[error("the configuration is not valid: {}", join(.0))]
    InvalidConfiguration(Vec<Violation>),
    /// The queue has children; only queues without children accept jobs.
    #[error("queue `{queue}` has children, such as `{child}`; submit to one of them")]
    QueueHasChildren {
        /// Name of the queue.
        queue: String,
        /// One of its children.
        child: String,
    },
    /// The queue accepts no new jobs.
    #[error("queue `{0}` is retired: it was taken out of the configuration and takes no new jobs")]
    QueueRetired(String),
    /// The placement would exceed the limit of a queue, or of a user in it.
    #[error("{who} would have {would_have} {resource}, over the limit of {limit}")]
    OverLimit {
        /// `queue research`, `user ada in queue research`.
        who: String,
        /// Which resource.
        resource: String,
        /// The new total.
        would_have: u64,
        /// Name of the resource.
        limit: u64,
    },
    /// A claimed resource is not free, nor held by its victims, nor part of a superseded claim.
    #[error("the claim of unit {unit} of job {job} cannot be made: {detail}")]
    ClaimInfeasible {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// Description of the conflict.
        detail: String,
    },
    /// The unit has no claim.
    #[error("unit {unit} of job {job} has no claim")]
    NoClaim {
        /// The job.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
    },
    /// Binding these cells would violate another virtual cluster's guarantee, or the queue may not bind them.
    #[error("cells cannot be bound to queue `{queue}`: {detail}")]
    CellsUnsafe {
        /// Name of the queue.
        queue: String,
        /// The arithmetic.
        detail: String,
    },
    /// A checkpoint must be newer than the last one of its attempt.
    #[error("checkpoint step {given} of job {job} is not after step {current}")]
    CheckpointOutOfOrder {
        /// The job.
        job: JobId,
        /// Step of the command.
        given: u64,
        /// Newest committed step.
        current: u64,
    },
    /// The unit has no such checkpoint.
    #[error("job {job} keeps no checkpoint of step {step} by attempt {epoch}")]
    UnknownCheckpoint {
        /// The job.
        job: JobId,
        /// The attempt that should have written it.
        epoch: AttemptEpoch,
        /// Training step of the checkpoint.
        step: u64,
    },
    /// Not all members of the gang are prepared, or the barrier is already lifted.
    #[error("the gang of job {job} unit {unit} cannot be released: {detail}")]
    GangNotWhole {
        /// Job of the gang.
        job: JobId,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// Description of the obstacle.
        detail: String,
    },
    /// The job has unfinished dependencies.
    #[error("job {job} waits for the end of job {open}")]
    JobHeld {
        /// The job.
        job: JobId,
        /// One of the dependencies.
        open: JobId,
    },
    /// The job is already suspended, or is not suspended.
    #[error("job {job} {detail}")]
    Suspension {
        /// The job.
        job: JobId,
        /// Description, as in `is suspended already, by ada`.
        detail: String,
    },
    /// The maximum number of the job's units already hold resources.
    #[error("{limit} units of job {job} hold resources, the limit of the job (tasks_at_once_max)")]
    TasksAtOnce {
        /// The job.
        job: JobId,
        /// The maximum.
        limit: u32,
    },
    /// The cluster has reached one of its limits.
    #[error("the cluster holds its limit of {limit} {what} ({limit_name})")]
    ClusterFull {
        /// The limited objects, in plural.
        what: String,
        /// Name of the limit.
        limit_name: String,
        /// The limit.
        limit: u64,
    },
}

fn join(violations: &[Violation]) -> String {
    violations
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}
