//! The worker's decisions, pure: what to start, stop, extend, journal and report.
//!
//! The worker crate drives this with real processes, the simulation with simulated ones. Every decision
//! follows from comparing the newest desired state with what the worker has; the fencing numbers decide
//! what counts as newest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::beat::{CheckpointReport, WorkerTaskPhase};
use crate::command::{Exit, GpuHealth};
use crate::desired::{DesiredState, TaskAssignment, TaskKey};
use crate::ids::{AttemptEpoch, GpuUuid, LeadershipEpoch, Revision, UnitIndex};
use crate::time::MonotonicMs;

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
    /// The GPU backend sees a GPU differently.
    GpuHealth {
        /// Which.
        gpu: GpuUuid,
        /// Now.
        health: GpuHealth,
    },
    /// Time passed.
    Tick,
}

/// What a supervisor has to say about its task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SupervisorReport {
    /// The process runs.
    Started,
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
}

/// A task as its worker holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentTask {
    /// Its unit.
    pub unit: UnitIndex,
    /// Its attempt.
    pub epoch: AttemptEpoch,
    /// Where it stands.
    pub phase: WorkerTaskPhase,
    /// Its lease in milliseconds (`partition_grace`).
    pub partition_grace_ms: u64,
    /// Newest checkpoint it committed.
    pub checkpoint: Option<CheckpointReport>,
    /// True once it was asked to stop.
    pub stop_asked: bool,
    /// When its supervisor kills it by itself.
    pub deadline: MonotonicMs,
}

/// Beats in flight that a worker remembers; an acknowledgement of an older one is ignored.
pub const BEATS_REMEMBERED_MAX: usize = 256;
/// Ended attempts whose epoch is remembered after their release, so that a late desired state does not
/// start them again.
pub const RELEASED_REMEMBERED_MAX: usize = 4_096;

/// A worker's memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agent {
    /// Newest leadership accepted; durable.
    pub(crate) leader: LeadershipEpoch,
    /// Revision of the desired state in force.
    pub(crate) desired_revision: Revision,
    /// The desired state in force.
    pub(crate) desired: BTreeMap<TaskKey, TaskAssignment>,
    /// What the worker holds; one attempt per task.
    pub(crate) tasks: BTreeMap<TaskKey, AgentTask>,
    /// Newest epoch ever started per task; durable, bounded by `RELEASED_REMEMBERED_MAX`.
    pub(crate) newest_epoch: BTreeMap<TaskKey, AttemptEpoch>,
    /// Health of every GPU.
    pub(crate) gpus: BTreeMap<GpuUuid, GpuHealth>,
    /// Send times of unacknowledged beats.
    pub(crate) beats: BTreeMap<u64, MonotonicMs>,
    /// Newest acknowledged sequence of this stream.
    pub(crate) acknowledged: u64,
    /// Send time of the newest acknowledged beat of any stream, if there was one.
    pub(crate) contact: Option<MonotonicMs>,
}
