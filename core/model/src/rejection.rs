//! Deterministic refusals: the only errors that may leave `apply`.
//!
//! Each names the thing and the way out. Disk trouble and corruption are never among them: those stop
//! the replica.

use serde::{Deserialize, Serialize};

use crate::ids::{
    AttemptEpoch, GpuUuid, HostId, JobId, LeadershipEpoch, PipelineId, TaskIndex, UnitIndex,
};
use crate::lifecycle::{JobPhase, TaskPhase, UnitPhase};
use crate::spec::Violation;

/// Why a command had no effect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Rejection {
    /// The command comes from a leader that leads no more.
    #[error("leadership epoch {given} is over; the current one is {current}")]
    StaleLeader {
        /// Epoch of the command.
        given: LeadershipEpoch,
        /// Epoch of the state.
        current: LeadershipEpoch,
    },
    /// No such component, or it is not the host's that reports it.
    #[error("{0} is no component of the host that reports it, or does not exist")]
    UnknownComponent(String),
    /// A repair or a check cannot begin or end now.
    #[error("{component}: {why}")]
    HealthWork {
        /// Of what.
        component: String,
        /// Why not.
        why: String,
    },
    /// There is no tripped breaker to reset.
    #[error("the breaker of pool `{0}` is not tripped; `muster health list` shows those that are")]
    BreakerWhole(String),
    /// There is a user of this name.
    #[error(
        "user `{0}` exists; `muster user rotate {0}` gives another token, `muster user remove {0}` makes room for another role"
    )]
    UserExists(String),
    /// No such user.
    #[error("user `{0}` does not exist; `muster user list` shows those that do")]
    UnknownUser(String),
    /// There is such a join token.
    #[error("join token `{0}` exists; make one of another name")]
    JoinTokenExists(String),
    /// No such join token, or not this one.
    #[error("join token `{0}` does not exist; `muster worker token list` shows those that do")]
    UnknownJoinToken(String),
    /// The join token lets nobody in any more.
    #[error("join token `{id}` {why}: an admin makes another one by `muster worker token create`")]
    JoinTokenSpent {
        /// Which.
        id: String,
        /// Why: `expired 20 s ago`.
        why: String,
    },
    /// The join token is for others.
    #[error(
        "join token `{id}` is for hosts named `{pattern}`, not for `{host}`: start the worker with such a `name`, or use another token"
    )]
    JoinTokenOfOthers {
        /// Which.
        id: String,
        /// Whom it is for.
        pattern: String,
        /// Who came.
        host: String,
    },
    /// Whoever has a certificate of this name is there.
    #[error(
        "host `{0}` is up, with a certificate of its own: stop its worker and try again when it is lost, or choose another `name`"
    )]
    HostIsUp(String),
    /// The specification breaks rules.
    #[error("the job is not valid: {}", join(.0))]
    InvalidSpec(Vec<Violation>),
    /// The request id was used before for a different request.
    #[error("request id was used before for another kind of request; choose a new one")]
    RequestReused,
    /// No such queue.
    #[error("queue `{0}` does not exist; `muster queue list` shows those that do")]
    UnknownQueue(String),
    /// The queue holds as many unfinished jobs as it may.
    #[error("queue `{queue}` holds its limit of {limit} unfinished jobs (live_jobs_max)")]
    QueueFull {
        /// Which queue.
        queue: String,
        /// Its limit.
        limit: u64,
    },
    /// No such job (it may have been pruned).
    #[error("job {0} does not exist, or ended so long ago that it is forgotten")]
    UnknownJob(JobId),
    /// No such pipeline (its jobs may have been pruned).
    #[error("pipeline {0} does not exist, or ended so long ago that it is forgotten")]
    UnknownPipeline(PipelineId),
    /// The job is finished already.
    #[error("job {job} has already ended: {phase}")]
    JobFinished {
        /// Which job.
        job: JobId,
        /// How it ended.
        phase: JobPhase,
    },
    /// No such unit in the job.
    #[error("job {job} has no unit {unit}")]
    UnknownUnit {
        /// Which job.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
    },
    /// The unit is in a phase that the command does not fit.
    #[error("unit {unit} of job {job} is {phase:?}")]
    UnitPhase {
        /// Which job.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// Its phase.
        phase: UnitPhase,
    },
    /// The attempt is not the unit's current one.
    #[error("attempt {given} of unit {unit} of job {job} is not the current one")]
    StaleAttempt {
        /// Which job.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// Epoch of the command.
        given: AttemptEpoch,
    },
    /// The attempt has no such task.
    #[error("attempt {epoch} of job {job} has no task {task}")]
    UnknownTask {
        /// Which job.
        job: JobId,
        /// Its attempt.
        epoch: AttemptEpoch,
        /// The task.
        task: TaskIndex,
    },
    /// The task cannot go from its phase to the reported one.
    #[error("task {task} of job {job} cannot go from {from:?} to {to:?}")]
    TaskTransition {
        /// Which job.
        job: JobId,
        /// The task.
        task: TaskIndex,
        /// Its phase.
        from: TaskPhase,
        /// The reported phase.
        to: TaskPhase,
    },
    /// The placement does not match the unit's tasks.
    #[error("the placement of unit {unit} of job {job} does not fit its tasks: {detail}")]
    PlacementShape {
        /// Which job.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// What is wrong.
        detail: String,
    },
    /// A host cannot take what was placed on it.
    #[error("host {host} cannot take the placement: {detail}")]
    PlacementInfeasible {
        /// Which host.
        host: HostId,
        /// What is missing.
        detail: String,
    },
    /// No such host.
    #[error("host `{0}` does not exist; `muster host list` shows those that do")]
    UnknownHost(String),
    /// No such GPU.
    #[error("{0} does not exist; `muster gpu list` shows those that do")]
    UnknownGpu(GpuUuid),
    /// Another worker holds this host name and is alive.
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
        /// Newest one.
        current: u64,
    },
    /// Two hosts present the same GPU.
    #[error("{gpu} is presented by host `{holder}` already; a GPU belongs to one host")]
    GpuClaimedTwice {
        /// Which GPU.
        gpu: GpuUuid,
        /// The host that has it.
        holder: String,
    },
    /// The registration breaks a rule.
    #[error("the registration is not valid: {0}")]
    InvalidRegistration(Violation),
    /// Something given is over a limit or missing.
    #[error("the request is not valid: {0}")]
    InvalidRequest(Violation),
    /// There is no block to take away.
    #[error("{0} is not blocked")]
    NotBlocked(String),
    /// Its pool would be without a host.
    #[error(
        "host `{host}` is the last of pool `{pool}` that takes work; give the pool another host, or force it"
    )]
    LastHost {
        /// Which host.
        host: String,
        /// Which pool.
        pool: String,
    },
    /// Nothing to cancel.
    #[error("no block of {0} is planned")]
    NothingPlanned(String),
    /// The configuration breaks rules, or the cluster cannot honour it.
    #[error("the configuration is not valid: {}", join(.0))]
    InvalidConfiguration(Vec<Violation>),
    /// Jobs are submitted to queues without children.
    #[error("queue `{queue}` has queues in it, such as `{child}`; submit to one of those")]
    QueueHasChildren {
        /// Which queue.
        queue: String,
        /// One of its children.
        child: String,
    },
    /// The queue takes no new jobs.
    #[error("queue `{0}` is retired: it was taken out of the configuration and takes no new jobs")]
    QueueRetired(String),
    /// The placement would take a queue, or a user in it, over its limit.
    #[error("{who} would have {would_have} {resource}, over the limit of {limit}")]
    OverLimit {
        /// `queue research`, `user ada in queue research`.
        who: String,
        /// Which resource.
        resource: String,
        /// What there would be.
        would_have: u64,
        /// The limit.
        limit: u64,
    },
    /// What a claim takes is not free, nor its victims', nor superseded.
    #[error("the claim of unit {unit} of job {job} cannot be made: {detail}")]
    ClaimInfeasible {
        /// Whose.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// What is in the way.
        detail: String,
    },
    /// The unit has no claim.
    #[error("unit {unit} of job {job} has no claim")]
    NoClaim {
        /// Whose.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
    },
    /// Binding these cells would take from another virtual cluster what it is guaranteed, or is not the queue's to bind.
    #[error("cells cannot be bound to queue `{queue}`: {detail}")]
    CellsUnsafe {
        /// Which queue.
        queue: String,
        /// The arithmetic.
        detail: String,
    },
    /// A checkpoint must be newer than the last one of its attempt.
    #[error("checkpoint step {given} of job {job} is not after step {current}")]
    CheckpointOutOfOrder {
        /// Which job.
        job: JobId,
        /// Step of the command.
        given: u64,
        /// Newest committed step.
        current: u64,
    },
    /// The unit keeps no such checkpoint.
    #[error("job {job} keeps no checkpoint of step {step} by attempt {epoch}")]
    UnknownCheckpoint {
        /// Which job.
        job: JobId,
        /// The attempt that should have written it.
        epoch: AttemptEpoch,
        /// Its step.
        step: u64,
    },
    /// Not all members of the gang are prepared, or they need not wait for each other any more.
    #[error("the gang of job {job} unit {unit} cannot be let go: {detail}")]
    GangNotWhole {
        /// Whose gang.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// What is against it.
        detail: String,
    },
    /// The job waits for others to end.
    #[error("job {job} waits for the end of job {open}")]
    JobHeld {
        /// Which job.
        job: JobId,
        /// One of those that it waits for.
        open: JobId,
    },
    /// The job's being suspended, or not being so, is against it.
    #[error("job {job} {detail}")]
    Suspension {
        /// Which job.
        job: JobId,
        /// What is against it: `is suspended already, by ada`.
        detail: String,
    },
    /// As many of the job's units hold resources as may at a time.
    #[error(
        "{limit} units of job {job} hold resources, as many as may at a time (tasks_at_once_max)"
    )]
    TasksAtOnce {
        /// Which job.
        job: JobId,
        /// How many may.
        limit: u32,
    },
    /// The cluster is at one of its limits.
    #[error("the cluster holds its limit of {limit} {what} ({limit_name})")]
    ClusterFull {
        /// What there are too many of.
        what: String,
        /// The limit's name.
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
