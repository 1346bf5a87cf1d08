//! Parts of a job's history.

use muster_model::command::StopCause;
use muster_model::ids::AttemptEpoch;
use muster_model::job::{Barrier, CancelRequest, Checkpoint, StopOrder, Suspension, UnitCounts};
use muster_model::time::TimeMs;

use crate::field::{InvalidField, port, required};
use crate::v1;

impl From<&CancelRequest> for v1::CancelRequest {
    fn from(cancel: &CancelRequest) -> Self {
        Self {
            author: cancel.author.clone(),
            reason: cancel.reason.clone(),
            at_ms: cancel.at.0,
        }
    }
}

impl From<v1::CancelRequest> for CancelRequest {
    fn from(wire: v1::CancelRequest) -> Self {
        Self {
            author: wire.author,
            reason: wire.reason,
            at: TimeMs(wire.at_ms),
        }
    }
}

impl From<&Suspension> for v1::Suspension {
    fn from(suspension: &Suspension) -> Self {
        Self {
            author: suspension.author.clone(),
            reason: suspension.reason.clone(),
            at_ms: suspension.at.0,
        }
    }
}

impl From<v1::Suspension> for Suspension {
    fn from(wire: v1::Suspension) -> Self {
        Self {
            author: wire.author,
            reason: wire.reason,
            at: TimeMs(wire.at_ms),
        }
    }
}

impl From<&UnitCounts> for v1::UnitCounts {
    fn from(counts: &UnitCounts) -> Self {
        Self {
            waiting: counts.waiting,
            placed: counts.placed,
            running: counts.running,
            stopping: counts.stopping,
            succeeded: counts.succeeded,
            failed: counts.failed,
            cancelled: counts.cancelled,
        }
    }
}

impl From<v1::UnitCounts> for UnitCounts {
    fn from(wire: v1::UnitCounts) -> Self {
        Self {
            waiting: wire.waiting,
            placed: wire.placed,
            running: wire.running,
            stopping: wire.stopping,
            succeeded: wire.succeeded,
            failed: wire.failed,
            cancelled: wire.cancelled,
        }
    }
}

impl From<Barrier> for v1::Barrier {
    fn from(barrier: Barrier) -> Self {
        Self {
            master_port: barrier.master_port.map(u32::from),
            released_at_ms: barrier.released_at.map(|at| at.0),
        }
    }
}

impl TryFrom<v1::Barrier> for Barrier {
    type Error = InvalidField;

    fn try_from(wire: v1::Barrier) -> Result<Self, InvalidField> {
        Ok(Self {
            master_port: port("master_port", wire.master_port)?,
            released_at: wire.released_at_ms.map(TimeMs),
        })
    }
}

impl From<&StopOrder> for v1::StopOrder {
    fn from(stop: &StopOrder) -> Self {
        Self {
            reason: Some((&stop.cause()).into()),
            at_ms: stop.at.0,
            grace_ms: stop.grace_ms,
        }
    }
}

impl TryFrom<v1::StopOrder> for StopOrder {
    type Error = InvalidField;

    fn try_from(wire: v1::StopOrder) -> Result<Self, InvalidField> {
        let cause: StopCause = required("reason", wire.reason)?.try_into()?;
        Ok(Self::new(cause, TimeMs(wire.at_ms), wire.grace_ms))
    }
}

impl From<&Checkpoint> for v1::Checkpoint {
    fn from(checkpoint: &Checkpoint) -> Self {
        Self {
            epoch: checkpoint.epoch.get(),
            step: checkpoint.step,
            path: checkpoint.path.clone(),
            size_bytes: checkpoint.size_bytes,
            digest: checkpoint.digest.clone(),
            committed_at_ms: checkpoint.committed_at.0,
            save_ms: checkpoint.save_ms,
            damaged: checkpoint.damaged.clone(),
            damaged_by: checkpoint.damaged_by.map_or(0, AttemptEpoch::get),
        }
    }
}

impl From<v1::Checkpoint> for Checkpoint {
    fn from(wire: v1::Checkpoint) -> Self {
        Self {
            epoch: AttemptEpoch(wire.epoch),
            step: wire.step,
            path: wire.path,
            size_bytes: wire.size_bytes,
            digest: wire.digest,
            committed_at: TimeMs(wire.committed_at_ms),
            save_ms: wire.save_ms,
            damaged: wire.damaged,
            damaged_by: (wire.damaged_by > 0).then_some(AttemptEpoch(wire.damaged_by)),
        }
    }
}
