//! What comes in to the agent's decision loop.

use muster_control::agent::SupervisorReport;
use muster_model::beat::{CheckpointReport, SpoilReport, WorkDone};
use muster_model::health::Finding;
use muster_model::ids::GpuUuid;
use muster_proto::v1;
use muster_supervisor::RunId;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::gpu::GpuHold;
use crate::limits::INBOX_MAX;
use crate::session::Session;

/// Something that happened.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A supervisor reported.
    Supervisor(RunId, SupervisorReport),
    /// A task committed a checkpoint.
    Checkpoint(RunId, CheckpointReport),
    /// Somebody holds a GPU who is to give it back; or nobody any more.
    GpuHeld(GpuUuid, Option<GpuHold>),
    /// So many MiB of a GPU's memory are in use although its task was killed and waited for; 0 once it is free.
    GpuStillHeld(GpuUuid, u64),
    /// A task could not read a checkpoint of an earlier attempt.
    Spoiled(RunId, SpoilReport),
    /// A task is at this step.
    Progress(RunId, u64),
    /// What was found about health.
    Found(Vec<Finding>),
    /// A repair or a check came to its end.
    HealthWorkDone(WorkDone),
    /// A session with a leader is open.
    Opened(Session),
    /// The leader said something in the session of this number.
    Message(u64, v1::leader_message::Kind),
    /// The session of this number is over.
    Closed(u64),
}

/// The sending side, one for each source.
pub(crate) type Outbox = Sender<Incoming>;

/// A bounded inbox: sources wait while the loop is busy.
pub(crate) fn inbox() -> (Outbox, Receiver<Incoming>) {
    channel(INBOX_MAX)
}
