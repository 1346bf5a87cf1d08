//! The worker's decisions, pure: what to start, stop, extend, journal and report.
//!
//! The worker crate drives this with real processes, the simulation with simulated ones. Every decision
//! follows from comparing the newest desired state with what the worker has; the fencing numbers decide
//! what counts as newest.

mod beats;
mod duties;
mod journal;
mod reconcile;
mod started;
mod step;
mod task;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use beats::BEATS_REMEMBERED_MAX;
pub use started::RELEASED_REMEMBERED_MAX;
pub use task::AgentTask;

use muster_health::outbox::Outbox;
use muster_model::beat::{
    Beat, CheckpointReport, SpoilReport, TaskStatus, WorkDone, WorkerStatus, WorkerTaskPhase,
};
use muster_model::command::{Exit, GpuHealth};
use muster_model::desired::{DesiredState, Rendezvous, TaskAssignment};
use muster_model::health::{Finding, Order};
use muster_model::ids::{AttemptEpoch, GpuUuid, LeadershipEpoch, Revision, TaskKey, UnitIndex};
use muster_model::time::MonotonicMs;

use crate::agent::beats::Beats;
use crate::agent::duties::Duties;
use crate::agent::started::Started;

/// What can happen to a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A leader sent what this host should run.
    Desired(DesiredState),
    /// A new stream to a leader is open: sequences start again, nothing sent before will be acknowledged.
    StreamOpened,
    /// A beat is about to be sent; its time is noted first.
    BeatSent {
        /// Its sequence.
        sequence: u64,
    },
    /// The leader acknowledged a beat: leases run from the time noted for it.
    BeatAcknowledged {
        /// Who acknowledged; an older leadership than the newest seen is ignored.
        leader: LeadershipEpoch,
        /// Which beat; one that the worker does not remember is ignored.
        sequence: u64,
    },
    /// A supervisor reported.
    Supervisor {
        /// Whose.
        key: TaskKey,
        /// Which attempt.
        epoch: AttemptEpoch,
        /// What.
        report: SupervisorReport,
    },
    /// A task committed a checkpoint.
    Checkpoint {
        /// Whose.
        key: TaskKey,
        /// Which attempt: one that is not the task's current one is refused.
        epoch: AttemptEpoch,
        /// What.
        report: CheckpointReport,
    },
    /// A task got somewhere.
    Progress {
        /// Whose.
        key: TaskKey,
        /// Which attempt: one that is not the task's current one is refused.
        epoch: AttemptEpoch,
        /// The training step it is at.
        step: u64,
    },
    /// A task could not read a checkpoint of an earlier attempt.
    Spoiled {
        /// Whose.
        key: TaskKey,
        /// Which attempt: one that is not the task's current one is refused.
        epoch: AttemptEpoch,
        /// What.
        report: SpoilReport,
    },
    /// The GPU backend sees a GPU differently.
    GpuHealth {
        /// Which.
        gpu: GpuUuid,
        /// Now.
        health: GpuHealth,
    },
    /// The health of this host, or of a part of it, is not what it was; the numbers of findings are given here.
    Found(Vec<Finding>),
    /// A repair or a check came to its end.
    HealthWorkDone(WorkDone),
    /// Time passed.
    Tick,
}

/// What a supervisor has to say about its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SupervisorReport {
    /// All that the task needs is there; its gang is waited for.
    Prepared {
        /// The port that is kept free for the gang to meet on, if the task is rank 0.
        master_port: Option<u16>,
    },
    /// The process runs.
    Started,
    /// It was killed in vain: it hangs in the kernel, and will never run a line of its program again. What it holds stays
    /// held; its end comes later, if ever.
    Stuck {
        /// Who hangs where, for people.
        detail: String,
        /// How its main process ended, if that did.
        exit: Option<Exit>,
    },
    /// The process ended (or could not be started: see `Exit::start_error`).
    Exited(Exit),
    /// There is no supervisor although there should be one.
    Vanished {
        /// What is known.
        detail: String,
    },
}

/// What the driver must do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write this to the journal and fsync it before any later action is carried out.
    Journal(JournalRecord),
    /// Start a supervisor for this task; its lease ends at `deadline`.
    Start {
        /// What to run.
        assignment: Box<TaskAssignment>,
        /// When the supervisor must kill it unless told otherwise.
        deadline: MonotonicMs,
    },
    /// The gang of a prepared task is released: it begins.
    Begin {
        /// Which.
        key: TaskKey,
        /// Its attempt.
        epoch: AttemptEpoch,
        /// The port that the gang meets on (`MASTER_PORT`).
        master_port: u16,
    },
    /// The gang of a task that runs meets elsewhere, because a member of it was swapped.
    Renew {
        /// Which.
        key: TaskKey,
        /// Its attempt.
        epoch: AttemptEpoch,
        /// Where it meets, and where its members are.
        rendezvous: Box<Rendezvous>,
    },
    /// Let a task's processes stand still where they are, or go on.
    Suspend {
        /// Which.
        key: TaskKey,
        /// Its attempt.
        epoch: AttemptEpoch,
        /// True: stand still. False: go on.
        suspended: bool,
    },
    /// Ask a task to stop, kill it when the grace is over.
    Stop {
        /// Which.
        key: TaskKey,
        /// Its attempt.
        epoch: AttemptEpoch,
        /// Why, for the flag file.
        reason: String,
        /// Milliseconds between asking and killing; 0 kills at once.
        grace_ms: u64,
    },
    /// Push out the instant at which the supervisor kills the task by itself.
    ExtendLease {
        /// Which.
        key: TaskKey,
        /// Its attempt.
        epoch: AttemptEpoch,
        /// The new instant.
        deadline: MonotonicMs,
    },
    /// The end of this attempt is acknowledged: let its supervisor go and remove its leftovers.
    Release {
        /// Which.
        key: TaskKey,
        /// Its attempt.
        epoch: AttemptEpoch,
    },
    /// Remove the folder of a checkpoint that is not kept any more. It may be gone already, or may not be removed: that is
    /// the driver's to see.
    RemoveCheckpoint {
        /// The unit's first task, whose checkpoint directory it lies in.
        key: TaskKey,
        /// Its unit.
        unit: UnitIndex,
        /// Where it is.
        path: String,
        /// Checkpoints that stay.
        kept: Vec<String>,
    },
    /// Carry out a repair or a check.
    HealthWork(Order),
    /// The worker's state changed: send a beat with the whole status now.
    SendStatus,
}

/// What must survive the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JournalRecord {
    /// The newest leadership accepted.
    Leader(LeadershipEpoch),
    /// A task is about to be started.
    Starting(Box<TaskAssignment>),
    /// An attempt ended, as its supervisor said.
    Ended {
        /// Which.
        key: TaskKey,
        /// Its attempt.
        epoch: AttemptEpoch,
        /// How.
        phase: WorkerTaskPhase,
    },
    /// An attempt's end is acknowledged.
    Released {
        /// Which.
        key: TaskKey,
        /// Its attempt.
        epoch: AttemptEpoch,
    },
    /// No attempt up to this epoch may be started any more: the single ones are forgotten.
    Forgotten {
        /// Newest forgotten epoch.
        up_to: AttemptEpoch,
    },
}

/// What the driver found of an attempt when the agent started: its supervisor, or what that left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Whose.
    pub key: TaskKey,
    /// Its attempt.
    pub epoch: AttemptEpoch,
    /// What is to be said of its task: running, stopping, or how it ended.
    pub phase: WorkerTaskPhase,
    /// When it kills its task by itself.
    pub deadline: MonotonicMs,
    /// Whether it lets its task stand still.
    pub is_suspended: bool,
    /// What it was started with; none if that was never written, or cannot be read: then nothing of it can
    /// be held.
    pub assignment: Option<Box<TaskAssignment>>,
}

/// A worker's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    /// Newest leadership accepted; durable.
    leader: LeadershipEpoch,
    /// The desired state in force; none until a leader sent one to this process.
    desired: Option<Desired>,
    /// Whether something of it that the worker will start had to wait when it was last compared with what the worker holds.
    has_pending: bool,
    /// What the worker holds; one attempt per task.
    tasks: BTreeMap<TaskKey, AgentTask>,
    /// What was started before; durable.
    started: Started,
    /// Health of every GPU.
    gpus: BTreeMap<GpuUuid, GpuHealth>,
    /// Findings, repairs and checks.
    health: Duties,
    /// Beats and their acknowledgements.
    beats: Beats,
}

/// A desired state in force.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Desired {
    leader: LeadershipEpoch,
    revision: Revision,
    tasks: BTreeMap<TaskKey, TaskAssignment>,
}

impl Agent {
    /// Newest leadership accepted.
    #[must_use]
    pub const fn leader(&self) -> LeadershipEpoch {
        self.leader
    }

    /// Revision of the desired state that the worker works on; 0 before the first one.
    #[must_use]
    pub fn desired_revision(&self) -> Revision {
        let desired = self.desired.as_ref();
        desired.map_or(Revision::default(), |desired| desired.revision)
    }

    /// What the worker holds.
    #[must_use]
    pub const fn tasks(&self) -> &BTreeMap<TaskKey, AgentTask> {
        &self.tasks
    }

    /// Send time of the newest beat of the newest stream that its leader acknowledged.
    #[must_use]
    pub const fn contact(&self) -> Option<MonotonicMs> {
        self.beats.contact()
    }

    /// When the first supervisor will kill its task unless a beat is acknowledged before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<MonotonicMs> {
        let alive = self.tasks.values().filter(|task| task.is_alive());
        alive.map(|task| task.deadline).min()
    }

    /// The beat to send now under this sequence; with `whole` it carries the whole status.
    #[must_use]
    pub fn beat(&self, sequence: u64, whole: bool) -> Beat {
        Beat {
            sequence,
            acknowledged: self.beats.acknowledged(),
            leader: self.leader,
            desired_revision: self.desired_revision(),
            status: whole.then(|| self.status()),
        }
    }

    /// Everything the worker knows that the leader must know too.
    ///
    /// A task that is to be started but has to wait (for contact, or for its GPUs) is listed as starting:
    /// the leader takes one that is missing for gone, and the worker starts none that it left out.
    #[must_use]
    pub fn status(&self) -> WorkerStatus {
        let held = self.tasks.values().map(AgentTask::status);
        let pending = self
            .desired
            .iter()
            .flat_map(|desired| desired.tasks.values())
            .filter(|assignment| self.is_to_start(assignment))
            .filter(|assignment| !self.tasks.contains_key(&assignment.key))
            .map(|assignment| TaskStatus {
                key: assignment.key,
                unit: assignment.unit,
                epoch: assignment.epoch,
                phase: WorkerTaskPhase::Starting,
                checkpoints: Vec::new(),
                progress_step: None,
                spoiled: Vec::new(),
            });
        let mut tasks: Vec<TaskStatus> = held.chain(pending).collect();
        tasks.sort_by_key(|task| task.key);
        WorkerStatus {
            tasks,
            gpus: self
                .gpus
                .iter()
                .map(|(gpu, health)| (*gpu, health.clone()))
                .collect(),
            findings: self.health.findings(),
            health_work: self.health.done().to_vec(),
        }
    }

    /// Findings that nobody acknowledged yet.
    #[must_use]
    pub const fn findings(&self) -> &Outbox {
        self.health.waiting()
    }

    /// Which health rules are in force, by the revision that set them, and by what their file is known: 0 for those that ship with
    /// Muster.
    #[must_use]
    pub const fn health_rules(&self) -> (Revision, u64) {
        self.health.rules()
    }
}
