//! Reports of the monitor to the agent.

use muster_model::health::Finding;
use muster_model::heartbeat::WorkDone;
use muster_model::ids::GpuUuid;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use crate::gpu::GpuHold;
use crate::limits::REPORTS_WAITING_MAX;

/// A report to the agent.
#[derive(Debug)]
pub enum MonitorReport {
    /// Processes of no current task hold a GPU's memory; none once it is released.
    GpuHeld(GpuUuid, Option<GpuHold>),
    /// MiB of a GPU's memory in use although its task was killed and the wait is over; 0 once it is free.
    GpuMemoryInUse(GpuUuid, u64),
    /// New health findings.
    Found(Vec<Finding>),
    /// An ordered repair or check ended.
    OrderDone(WorkDone),
}

/// The sending side, one for each source.
pub type ReportSender = Sender<MonitorReport>;

/// A bounded channel: sources wait while the agent is busy.
#[must_use]
pub fn report_channel() -> (ReportSender, Receiver<MonitorReport>) {
    channel(REPORTS_WAITING_MAX)
}
