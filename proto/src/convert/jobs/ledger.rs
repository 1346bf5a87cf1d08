//! GPU-time accounting, and checkpoints to be removed.

use muster_model::ids::AttemptEpoch;
use muster_model::job::{Ledger, Loss, Removal};

use crate::v1;

/// An accounting ledger; none if it is empty.
#[must_use]
pub fn ledger_to_wire(ledger: &Ledger) -> Option<v1::Ledger> {
    let loss = |loss: Loss| {
        (loss != Loss::default()).then_some(v1::Loss {
            queue_gpu_ms: loss.queue_gpu_ms,
            restart_gpu_ms: loss.restart_gpu_ms,
            work_gpu_ms: loss.work_gpu_ms,
        })
    };
    (*ledger != Ledger::default()).then(|| v1::Ledger {
        kept_gpu_ms: ledger.kept_gpu_ms,
        first: loss(ledger.first),
        preempt: loss(ledger.preempt),
        infra: loss(ledger.infra),
        user: loss(ledger.user),
        admin: loss(ledger.admin),
        paused_gpu_ms: ledger.paused_gpu_ms,
    })
}

/// Ledger of a message.
#[must_use]
pub fn ledger_from_wire(wire: Option<v1::Ledger>) -> Ledger {
    let loss = |wire: Option<v1::Loss>| {
        let wire = wire.unwrap_or_default();
        Loss {
            queue_gpu_ms: wire.queue_gpu_ms,
            restart_gpu_ms: wire.restart_gpu_ms,
            work_gpu_ms: wire.work_gpu_ms,
        }
    };
    let wire = wire.unwrap_or_default();
    Ledger {
        kept_gpu_ms: wire.kept_gpu_ms,
        paused_gpu_ms: wire.paused_gpu_ms,
        first: loss(wire.first),
        preempt: loss(wire.preempt),
        infra: loss(wire.infra),
        user: loss(wire.user),
        admin: loss(wire.admin),
    }
}

impl From<&Removal> for v1::Removal {
    fn from(removal: &Removal) -> Self {
        Self {
            epoch: removal.epoch.get(),
            step: removal.step,
            path: removal.path.clone(),
        }
    }
}

impl From<v1::Removal> for Removal {
    fn from(wire: v1::Removal) -> Self {
        Self {
            epoch: AttemptEpoch(wire.epoch),
            step: wire.step,
            path: wire.path,
        }
    }
}
