//! What happened.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::command::{
    Block, BlockTarget, Exit, GpuHealth, HostHealth, JobDefaults, Standing, StopCause, Victim,
};
use crate::desired::RestartReason;
use crate::event::{AccessChange, HealthNote, ReplicaChanged};
use crate::health::{Blame, Component, Phase};
use crate::ids::{
    AttemptEpoch, GpuUuid, HostId, JobId, LeadershipEpoch, ReplicaId, TaskIndex, UnitIndex,
};
use crate::lifecycle::JobPhase;
use crate::spec::SuspendMode;
use crate::time::TimeMs;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum EventKind {
    /// A replica began to lead.
    LeaderBegan {
        /// Which one.
        replica: ReplicaId,
        /// Its fencing token.
        epoch: LeadershipEpoch,
    },
    /// A job was accepted.
    JobSubmitted {
        /// Its id.
        job: JobId,
        /// Its name.
        name: String,
        /// Its user.
        user: String,
        /// Its queue.
        queue: String,
    },
    /// Somebody asked for a job's end.
    JobCancelRequested {
        /// Which job.
        job: JobId,
        /// Who.
        author: String,
        /// Why.
        reason: String,
    },
    /// A job was suspended.
    JobSuspended {
        /// Which job.
        job: JobId,
        /// Who did it.
        author: String,
        /// Why.
        reason: String,
        /// How.
        mode: SuspendMode,
    },
    /// A suspended job goes on.
    JobResumed {
        /// Which job.
        job: JobId,
        /// Who let it.
        author: String,
        /// Why.
        reason: String,
    },
    /// A job reached its end.
    JobFinished {
        /// Which job.
        job: JobId,
        /// How.
        phase: JobPhase,
        /// Why, for people; empty on success.
        reason: String,
    },
    /// A finished job was forgotten.
    JobPruned {
        /// Which job.
        job: JobId,
    },
    /// A unit received its allocation, whole.
    AttemptPlaced {
        /// Whose.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// The attempt.
        epoch: AttemptEpoch,
        /// Counts the unit's attempts from 1.
        number: u32,
        /// Hosts in task order, without repetition.
        hosts: Vec<HostId>,
        /// GPUs given in all.
        gpus: u32,
        /// Training step of the checkpoint that it goes on from; none if it begins anew.
        resumes_step: Option<u64>,
    },
    /// A task has all that it needs, and waits for the rest of its gang.
    TaskPrepared {
        /// Whose.
        job: JobId,
        /// Its unit.
        unit: UnitIndex,
        /// Its attempt.
        epoch: AttemptEpoch,
        /// The task.
        task: TaskIndex,
        /// Where.
        host: HostId,
    },
    /// All members of a gang are prepared: they begin.
    GangReleased {
        /// Whose.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// The attempt.
        epoch: AttemptEpoch,
        /// Its hosts in task order, without repetition.
        hosts: Vec<HostId>,
        /// The port that they meet on.
        master_port: u16,
    },
    /// A task's process runs.
    TaskStarted {
        /// Whose.
        job: JobId,
        /// Its unit.
        unit: UnitIndex,
        /// Its attempt.
        epoch: AttemptEpoch,
        /// The task.
        task: TaskIndex,
        /// Where.
        host: HostId,
    },
    /// Every task of the attempt runs.
    AttemptRunning {
        /// Whose.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// The attempt.
        epoch: AttemptEpoch,
    },
    /// A task's process ended.
    TaskExited {
        /// Whose.
        job: JobId,
        /// Its unit.
        unit: UnitIndex,
        /// Its attempt.
        epoch: AttemptEpoch,
        /// The task.
        task: TaskIndex,
        /// Where.
        host: HostId,
        /// How.
        exit: Exit,
    },
    /// A task was lost: its worker forgot it, or its lease ran out.
    TaskLost {
        /// Whose.
        job: JobId,
        /// Its unit.
        unit: UnitIndex,
        /// Its attempt.
        epoch: AttemptEpoch,
        /// The task.
        task: TaskIndex,
        /// Where.
        host: HostId,
        /// Why.
        detail: String,
    },
    /// An attempt was told to stop.
    AttemptStopping {
        /// Whose.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// The attempt.
        epoch: AttemptEpoch,
        /// Why.
        cause: StopCause,
    },
    /// An attempt ended and gave everything back.
    AttemptEnded {
        /// Whose.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// The attempt.
        epoch: AttemptEpoch,
        /// Hosts that got resources back, in task order, without repetition.
        hosts: Vec<HostId>,
        /// How it ended, for people.
        detail: String,
        /// Whose fault it was; none if it ended well, or before the cluster asked.
        blame: Option<Arc<Blame>>,
    },
    /// A unit waits again.
    UnitRequeued {
        /// Whose.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// Why it is run again.
        reason: RestartReason,
        /// Not before this instant.
        not_before: TimeMs,
    },
    /// A unit's attempt failed and was begun again at once where it was; that one's placement is an event of its own.
    UnitRetried {
        /// Whose.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// The attempt that failed.
        epoch: AttemptEpoch,
        /// Counts such retries in a row from 1.
        retry: u32,
        /// How many in a row there may be.
        retries_max: u32,
    },
    /// A member of a running gang was told to stop; the others go on.
    MemberLeaving {
        /// Whose.
        job: JobId,
        /// Its unit.
        unit: UnitIndex,
        /// The gang's attempt.
        epoch: AttemptEpoch,
        /// The member.
        task: TaskIndex,
        /// Where.
        host: HostId,
        /// Why.
        cause: StopCause,
    },
    /// A member of a gang is gone and gave back what it had; its place is vacant, and the others go on.
    MemberVacated {
        /// Whose.
        job: JobId,
        /// Its unit.
        unit: UnitIndex,
        /// The gang's attempt.
        epoch: AttemptEpoch,
        /// The member.
        task: TaskIndex,
        /// The fencing number that it had.
        member: AttemptEpoch,
        /// Where it was.
        host: HostId,
        /// Why the next one will be run.
        reason: RestartReason,
        /// Whether it counts as a failure of the job's own once the place is filled.
        charged: bool,
        /// The place is not filled before this instant.
        not_before: TimeMs,
        /// How the member ended, for people.
        detail: String,
    },
    /// A member of a gang came in place of the one that is gone.
    MemberSwapped {
        /// Whose.
        job: JobId,
        /// Its unit.
        unit: UnitIndex,
        /// The gang's attempt.
        epoch: AttemptEpoch,
        /// The member.
        task: TaskIndex,
        /// Its fencing number: reports of the one before count no more.
        member: AttemptEpoch,
        /// Where it runs.
        host: HostId,
        /// Where the one before ran.
        from: HostId,
        /// GPUs given to it.
        gpus: u32,
        /// Why it is run.
        reason: RestartReason,
    },
    /// A host joined, or its agent started anew, or it has other GPUs.
    HostRegistered {
        /// Its id.
        host: HostId,
        /// Its name.
        name: String,
        /// Number of its GPUs.
        gpus: u32,
    },
    /// The leader sees a host differently.
    HostHealthChanged {
        /// Which.
        host: HostId,
        /// Its name.
        name: String,
        /// Now.
        health: HostHealth,
        /// Whether it is so although its beats arrive: acknowledgements do not reach it.
        one_way: bool,
    },
    /// A worker sees a GPU differently.
    GpuHealthChanged {
        /// Which.
        gpu: GpuUuid,
        /// Where.
        host: HostId,
        /// Its host's name.
        host_name: String,
        /// Now.
        health: GpuHealth,
    },
    /// Something was taken out of placement.
    Blocked {
        /// What.
        target: BlockTarget,
        /// Why, by whom, until when.
        block: Block,
    },
    /// Something was let back in.
    Unblocked {
        /// What.
        target: BlockTarget,
        /// By whom (`expiry` if by itself).
        author: String,
    },
    /// A host is to be taken out of placement, or not after all.
    BlockPlanned {
        /// Which.
        target: BlockTarget,
        /// By whom (`expiry` if its time went by while nobody led).
        author: String,
        /// Why, and from when to when; none if what was planned is cancelled.
        block: Option<Block>,
    },
    /// A task committed a checkpoint.
    CheckpointCommitted {
        /// Whose.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// By which attempt.
        epoch: AttemptEpoch,
        /// Training step.
        step: u64,
        /// Where.
        path: String,
        /// Bytes.
        size_bytes: u64,
    },
    /// A task could not read a checkpoint; no later attempt is told of it.
    CheckpointSpoiled {
        /// Whose.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// The attempt that wrote it.
        epoch: AttemptEpoch,
        /// Training step.
        step: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// All that a job waited for has ended as it must have: it may be placed.
    JobEligible {
        /// Which job.
        job: JobId,
    },
    /// Other things count for jobs that say nothing themselves.
    JobDefaultsSet(JobDefaults),
    /// A replica came, votes from now on, votes no more, or is gone.
    ReplicaChanged(ReplicaChanged),
    /// By its health, a component stands elsewhere. What admins do is told as `Blocked` and `Unblocked`.
    HealthChanged {
        /// Which.
        component: Component,
        /// Its host.
        host: HostId,
        /// The host's name.
        host_name: String,
        /// Where it stood.
        from: Phase,
        /// Where it stands.
        to: Phase,
        /// By which rule; empty where time, a check or a repair did it.
        rule: String,
        /// What was seen or done.
        evidence: String,
    },
    /// Something about health that people should know.
    HealthNoted {
        /// What kind of thing.
        note: HealthNote,
        /// About what, as people call it.
        subject: String,
        /// What.
        detail: String,
        /// The job that it concerns, if it concerns one.
        job: Option<JobId>,
    },
    /// Older checkpoints of a unit are not kept any more.
    CheckpointsForgotten {
        /// Whose.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// Their steps, ascending.
        steps: Vec<u64>,
        /// Whether their folders are removed.
        removed: bool,
    },
    /// A queue was created or changed.
    QueueSet {
        /// Its name.
        name: String,
    },
    /// The tree of queues was replaced.
    QueuesConfigured {
        /// Who did it.
        author: String,
        /// Queues that were added, changed or retired, ascending.
        queues: Vec<String>,
    },
    /// The topology was replaced.
    TopologySet {
        /// Who did it.
        author: String,
    },
    /// The cluster has other levels of cells than before, by what its hosts' workers say.
    LevelsChanged {
        /// Names of those above hosts, largest first.
        above: Vec<String>,
        /// Names of those inside hosts, largest first.
        inside: Vec<String>,
    },
    /// Something in what a host's worker says of its place does not count, or everything does again.
    HostCellsDoubted {
        /// Which host.
        host: HostId,
        /// Its name.
        name: String,
        /// What does not count, and why, for people; nothing if everything counts.
        flaws: Vec<String>,
    },
    /// Resources were reserved for a waiting unit.
    UnitClaimed {
        /// Whose.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// GPUs.
        gpus: u32,
        /// Attempts that were stopped for it.
        victims: Vec<Victim>,
        /// When the resources should be free.
        expected_at: Option<TimeMs>,
    },
    /// Attempts were stopped to go on elsewhere, so that a waiting unit has room in one piece.
    UnitsMoved {
        /// Whose waiting unit.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// The attempts, ascending.
        moved: Vec<Victim>,
        /// GPU-milliseconds that this loses: work since the newest checkpoints, and starting again.
        cost_gpu_ms: u64,
        /// GPU-milliseconds that the waiting unit would have waited longer without.
        gain_gpu_ms: u64,
    },
    /// A claim was given up.
    ClaimDropped {
        /// Whose.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// Why.
        reason: String,
    },
    /// An attempt holds its resources on another ground now.
    StandingChanged {
        /// Whose.
        job: JobId,
        /// Which unit.
        unit: UnitIndex,
        /// Which attempt.
        epoch: AttemptEpoch,
        /// The new ground.
        standing: Standing,
    },
    /// Somebody may do more or less than before, or a worker came in.
    AccessChanged(AccessChange),
}
