//! Inputs of the agent's decision loop.

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

/// An event.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// A supervisor reported.
    Supervisor(RunId, SupervisorReport),
    /// A task committed a checkpoint.
    Checkpoint(RunId, CheckpointReport),
    /// A GPU's memory or an unkillable task still holds it; none once it is released.
    GpuHeld(GpuUuid, Option<GpuHold>),
    /// MiB of a GPU's memory in use although its task was killed and the wait is over; 0 once it is free.
    GpuStillHeld(GpuUuid, u64),
    /// A task could not read a checkpoint of an earlier attempt.
    Spoiled(RunId, SpoilReport),
    /// A task reported its training step.
    Progress(RunId, u64),
    /// New health findings.
    Found(Vec<Finding>),
    /// A repair or check ended.
    HealthWorkDone(WorkDone),
    /// A session with a leader is open.
    Opened(Session),
    /// A message of the leader in the session with this number.
    Message(u64, v1::leader_message::Kind),
    /// The session with this number is closed.
    Closed(u64),
}

/// The sending side, one for each source.
pub(crate) type Outbox = Sender<Incoming>;

/// A bounded inbox: sources wait while the loop is busy.
pub(crate) fn inbox() -> (Outbox, Receiver<Incoming>) {
    channel(INBOX_MAX)
}
