//! Parts of a job's history in the state that clients see as they are.

mod checkpoint;
pub mod ledger;
mod unit_counts;

use serde::{Deserialize, Serialize};

use crate::command::{StopCause, StopReason};
use crate::time::TimeMs;

pub use checkpoint::{Checkpoint, Removal};
pub use ledger::{Ledger, Loss};
pub use unit_counts::UnitCounts;

/// A request to end a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelRequest {
    /// The user who asked.
    pub author: String,
    /// Reason given by the user; may be empty.
    pub reason: String,
    /// Time of the request.
    pub at: TimeMs,
}

/// The suspension of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspension {
    /// The user who suspended it.
    pub author: String,
    /// Reason given by the user; may be empty.
    pub reason: String,
    /// Time of the suspension.
    pub at: TimeMs,
}

/// Start barrier of a gang: no member starts before all are prepared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Barrier {
    /// The rendezvous port reserved on rank 0's host; `None` until known.
    pub master_port: Option<u16>,
    /// When the members were released; `None` before.
    pub released_at: Option<TimeMs>,
}

/// An attempt's order to stop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopOrder {
    /// Reason of the stop.
    pub reason: StopReason,
    /// Evidence for the reason ([`StopCause::detail`]).
    pub detail: String,
    /// Time of the order.
    pub at: TimeMs,
    /// Milliseconds between the request to stop and the kill.
    pub grace_ms: u64,
}

impl StopOrder {
    /// Creates an order given at `at`.
    #[must_use]
    pub fn new(cause: StopCause, at: TimeMs, grace_ms: u64) -> Self {
        let StopCause { reason, detail } = cause;
        Self {
            reason,
            detail,
            at,
            grace_ms,
        }
    }

    /// Returns `what`, followed by the evidence if there is any.
    #[must_use]
    pub fn explained(&self, what: &str) -> String {
        let Self { reason, detail, .. } = self;
        if detail.is_empty() {
            return what.to_owned();
        }
        format!("{what}{}{detail}", reason.separator())
    }

    /// Returns the reason with its evidence.
    #[must_use]
    pub fn cause(&self) -> StopCause {
        StopCause::new(self.reason.clone(), self.detail.clone())
    }
}
