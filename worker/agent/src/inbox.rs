//! Inputs of the agent's decision loop, apart from the reports of the monitor.

use muster_control::agent::SupervisorReport;
use muster_model::heartbeat::{CheckpointReport, DamageReport};
use muster_model::ids::GpuUuid;
use muster_monitor::gpu::GpuHold;
use muster_proto::v1;
use muster_supervisor::RunId;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::connection::session::Session;
use crate::limits::INBOX_MAX;

/// An event.
#[derive(Debug)]
pub(crate) enum InboxItem {
    /// A supervisor reported.
    Supervisor(RunId, SupervisorReport),
    /// A task committed a checkpoint.
    Checkpoint(RunId, CheckpointReport),
    /// A task that cannot be killed still holds a GPU; none once it is released.
    GpuHeld(GpuUuid, Option<GpuHold>),
    /// A task could not read a checkpoint of an earlier attempt.
    Damaged(RunId, DamageReport),
    /// A task reported its training step.
    Progress(RunId, u64),
    /// A session with a leader is open.
    Opened(Session),
    /// A message of the leader in the session with this number.
    Message(u64, v1::leader_message::Kind),
    /// The session with this number is closed.
    Closed(u64),
}

/// The sending side, one for each source.
pub(crate) type Outbox = Sender<InboxItem>;

/// A bounded inbox: sources wait while the loop is busy.
pub(crate) fn inbox() -> (Outbox, Receiver<InboxItem>) {
    channel(INBOX_MAX)
}
