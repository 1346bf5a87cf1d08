//! The worker's pure decisions: what to start, stop, extend, journal and report.
//!
//! The worker crate drives this with real processes, the simulation with simulated ones. Every decision
//! follows from comparing the newest desired state with the worker's own state; the fencing numbers decide
//! which desired state is newest.

mod duties;
mod heartbeats;
mod journal;
mod reconcile;
mod start_record;
mod step;
mod task;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use heartbeats::HEARTBEATS_REMEMBERED_MAX;
pub use start_record::RELEASED_REMEMBERED_MAX;
pub use task::AgentTask;

use muster_health::outbox::Outbox;
use muster_model::command::{Exit, GpuHealth};
use muster_model::desired::{CountedFindings, DesiredState, Rendezvous, TaskAssignment};
use muster_model::health::{Finding, Order};
use muster_model::heartbeat::{
    CheckpointReport, DamageReport, Heartbeat, TaskStatus, WorkDone, WorkerStatus, WorkerTaskPhase,
};
use muster_model::ids::{AttemptEpoch, GpuUuid, LeadershipEpoch, Revision, TaskKey, UnitIndex};
use muster_model::time::MonotonicMs;

use crate::agent::duties::Duties;
use crate::agent::heartbeats::Heartbeats;
use crate::agent::start_record::Started;

/// Inputs of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// A leader sent the desired state of this host.
    Desired(DesiredState),
    /// A new stream to a leader is open: sequences restart, and heartbeats sent before will not be
    /// acknowledged.
    StreamOpened,
    /// A heartbeat is about to be sent; its time is recorded first.
    HeartbeatSent {
        /// Sequence of the heartbeat.
        sequence: u64,
    },
    /// The leader acknowledged a heartbeat: leases run from the send time recorded for it.
    HeartbeatAcknowledged {
        /// The acknowledging leadership; one older than the newest seen is ignored.
        leader: LeadershipEpoch,
        /// Sequence of the heartbeat; one that the worker does not remember is ignored.
        sequence: u64,
    },
    /// A supervisor reported about its task.
    Supervisor {
        /// The task.
        key: TaskKey,
        /// Epoch of the attempt.
        epoch: AttemptEpoch,
        /// The report.
        report: SupervisorReport,
    },
    /// A task committed a checkpoint.
    Checkpoint {
        /// The task.
        key: TaskKey,
        /// Epoch of the attempt; any other than the task's current one is rejected.
        epoch: AttemptEpoch,
        /// The checkpoint.
        report: CheckpointReport,
    },
    /// A task made progress.
    Progress {
        /// The task.
        key: TaskKey,
        /// Epoch of the attempt; any other than the task's current one is rejected.
        epoch: AttemptEpoch,
        /// Current training step.
        step: u64,
    },
    /// A task could not read a checkpoint of an earlier attempt.
    Damaged {
        /// The task.
        key: TaskKey,
        /// Epoch of the attempt; any other than the task's current one is rejected.
        epoch: AttemptEpoch,
        /// The unreadable checkpoint.
        report: DamageReport,
    },
    /// The GPU backend reports a changed health of a GPU.
    GpuHealth {
        /// The GPU.
        gpu: GpuUuid,
        /// New health.
        health: GpuHealth,
    },
    /// The health of this host, or of a component of it, changed; the agent assigns the numbers of the
    /// findings.
    Findings(Vec<Finding>),
    /// A repair or a check finished.
    HealthWorkDone(WorkDone),
    /// Time passed.
    Tick,
}

/// Reports of a supervisor about its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SupervisorReport {
    /// The task has everything it needs and waits for its gang.
    Prepared {
        /// The port reserved for the gang's rendezvous, if the task is rank 0.
        master_port: Option<u16>,
    },
    /// The process is running.
    Started,
    /// The task was killed without success: it hangs in the kernel and will execute no further instruction of
    /// its program. It keeps its resources; its end comes later, if ever.
    Stuck {
        /// Where which process hangs, for operators.
        detail: String,
        /// Exit of the main process, if that ended.
        exit: Option<Exit>,
    },
    /// The process ended (or could not be started: see `Exit::start_error`).
    Exited(Exit),
    /// The supervisor is missing although one should exist.
    Vanished {
        /// Details.
        detail: String,
    },
}

/// Effects that the driver must carry out, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write this record to the journal and fsync it before any later action is carried out.
    Journal(JournalRecord),
    /// Start a supervisor for this task; its lease ends at `deadline`.
    Start {
        /// The assignment to run.
        assignment: Box<TaskAssignment>,
        /// Time at which the supervisor kills the task unless its lease is extended.
        deadline: MonotonicMs,
    },
    /// Start a prepared task: its gang is released.
    Begin {
        /// The task.
        key: TaskKey,
        /// Epoch of the attempt.
        epoch: AttemptEpoch,
        /// The rendezvous port of the gang (`MASTER_PORT`).
        master_port: u16,
    },
    /// Update the rendezvous of a running task, because a member of its gang was swapped.
    Renew {
        /// The task.
        key: TaskKey,
        /// Epoch of the attempt.
        epoch: AttemptEpoch,
        /// Address of the rendezvous and locations of the members.
        rendezvous: Box<Rendezvous>,
    },
    /// Pause or resume a task's processes.
    Suspend {
        /// The task.
        key: TaskKey,
        /// Epoch of the attempt.
        epoch: AttemptEpoch,
        /// True: pause. False: resume.
        suspended: bool,
    },
    /// Ask a task to stop; kill it when the grace is over.
    Stop {
        /// The task.
        key: TaskKey,
        /// Epoch of the attempt.
        epoch: AttemptEpoch,
        /// Reason, for the flag file.
        reason: String,
        /// Milliseconds between the request and the kill; 0 kills immediately.
        grace_ms: u64,
    },
    /// Postpone the time at which the supervisor kills the task on its own.
    ExtendLease {
        /// The task.
        key: TaskKey,
        /// Epoch of the attempt.
        epoch: AttemptEpoch,
        /// The new time.
        deadline: MonotonicMs,
    },
    /// Release the supervisor of this attempt, whose end is acknowledged, and remove its leftovers.
    Release {
        /// The task.
        key: TaskKey,
        /// Epoch of the attempt.
        epoch: AttemptEpoch,
    },
    /// Remove the directory of a checkpoint that is no longer kept. It may already be gone, or removal may
    /// fail: the driver handles both.
    RemoveCheckpoint {
        /// The unit's first task, whose checkpoint directory contains it.
        key: TaskKey,
        /// Index of the unit within its job.
        unit: UnitIndex,
        /// Path of the checkpoint.
        path: String,
        /// Checkpoints that are kept.
        kept: Vec<String>,
    },
    /// Carry out a repair or a check.
    HealthWork(Order),
    /// The worker's state changed: send a heartbeat with the whole status now.
    SendStatus,
}

/// Durable records that outlive the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JournalRecord {
    /// The newest leadership accepted.
    Leader(LeadershipEpoch),
    /// A task is about to be started.
    Starting(Box<TaskAssignment>),
    /// An attempt ended, as reported by its supervisor.
    Ended {
        /// The task.
        key: TaskKey,
        /// Epoch of the attempt.
        epoch: AttemptEpoch,
        /// Final phase.
        phase: WorkerTaskPhase,
    },
    /// An attempt's end is acknowledged.
    Released {
        /// The task.
        key: TaskKey,
        /// Epoch of the attempt.
        epoch: AttemptEpoch,
    },
    /// No attempt up to this epoch may be started any more: individual records are dropped.
    Forgotten {
        /// Newest dropped epoch.
        up_to: AttemptEpoch,
    },
}

/// An attempt discovered by the driver when the agent started: its supervisor, or the files that it left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredAttempt {
    /// The task.
    pub key: TaskKey,
    /// Epoch of the attempt.
    pub epoch: AttemptEpoch,
    /// Phase of the task: running, stopping, or ended.
    pub phase: WorkerTaskPhase,
    /// Time at which the supervisor kills the task on its own.
    pub deadline: MonotonicMs,
    /// Whether the task is paused.
    pub is_suspended: bool,
    /// Assignment of the attempt; `None` if it was never written or cannot be read: the attempt cannot be
    /// held then.
    pub assignment: Option<Box<TaskAssignment>>,
}

/// The worker's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    /// Newest leadership accepted; durable.
    leader: LeadershipEpoch,
    /// The desired state in force; none until a leader sent one to this process.
    desired: Option<Desired>,
    /// Whether a task to be started had to wait at the last comparison of the desired state with the held
    /// tasks.
    has_pending: bool,
    /// Held tasks; one attempt per task.
    tasks: BTreeMap<TaskKey, AgentTask>,
    /// Attempts started before; durable.
    started: Started,
    /// Health of every GPU.
    gpus: BTreeMap<GpuUuid, GpuHealth>,
    /// Findings, repairs and checks.
    health: Duties,
    /// Heartbeats and their acknowledgements.
    heartbeats: Heartbeats,
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

    /// Revision of the desired state in force; 0 before the first one.
    #[must_use]
    pub fn desired_revision(&self) -> Revision {
        let desired = self.desired.as_ref();
        desired.map_or(Revision::default(), |desired| desired.revision)
    }

    /// Held tasks.
    #[must_use]
    pub const fn tasks(&self) -> &BTreeMap<TaskKey, AgentTask> {
        &self.tasks
    }

    /// Send time of the newest heartbeat of the current stream that the leader acknowledged.
    #[must_use]
    pub const fn contact(&self) -> Option<MonotonicMs> {
        self.heartbeats.contact()
    }

    /// Earliest time at which a supervisor kills its task unless another heartbeat is acknowledged before.
    #[must_use]
    pub fn next_deadline(&self) -> Option<MonotonicMs> {
        let alive = self.tasks.values().filter(|task| task.is_alive());
        alive.map(|task| task.deadline).min()
    }

    /// Builds the heartbeat with this sequence; with `whole` it carries the whole status.
    #[must_use]
    pub fn heartbeat(&self, sequence: u64, whole: bool) -> Heartbeat {
        Heartbeat {
            sequence,
            acknowledged: self.heartbeats.acknowledged(),
            leader: self.leader,
            desired_revision: self.desired_revision(),
            status: whole.then(|| self.status()),
        }
    }

    /// Complete status for the leader.
    ///
    /// A task whose start has to wait (for contact, or for its GPUs) is reported as starting: the leader
    /// treats a missing task as lost, and the worker never starts a task that it omitted.
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
                damaged: Vec::new(),
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

    /// Findings that no leader acknowledged yet.
    #[must_use]
    pub const fn findings(&self) -> &Outbox {
        self.health.waiting()
    }

    /// Health rules in force: the revision that set them, and the fingerprint of their file (0 for the rules
    /// shipped with Muster).
    #[must_use]
    pub const fn health_rules(&self) -> (Revision, u64) {
        self.health.rules()
    }

    /// Findings that the newest desired state counts against the host.
    #[must_use]
    pub const fn counted_findings(&self) -> &CountedFindings {
        self.health.counted()
    }
}
