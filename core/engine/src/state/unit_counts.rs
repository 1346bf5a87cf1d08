//! How far the units of a job are.

use muster_model::lifecycle::UnitPhase;
use serde::{Deserialize, Serialize};

/// How many units of a job are in each phase; they add up to `JobSpec::units`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitCounts {
    /// Waiting, with or without a history.
    pub waiting: u64,
    /// Allocated, not all running.
    pub placed: u64,
    /// Running.
    pub running: u64,
    /// Told to stop.
    pub stopping: u64,
    /// Ended well.
    pub succeeded: u64,
    /// Ended badly.
    pub failed: u64,
    /// Ended on request.
    pub cancelled: u64,
}

impl UnitCounts {
    /// The counter of one phase.
    pub const fn of_mut(&mut self, phase: UnitPhase) -> &mut u64 {
        match phase {
            UnitPhase::Waiting => &mut self.waiting,
            UnitPhase::Placed => &mut self.placed,
            UnitPhase::Running => &mut self.running,
            UnitPhase::Stopping => &mut self.stopping,
            UnitPhase::Succeeded => &mut self.succeeded,
            UnitPhase::Failed => &mut self.failed,
            UnitPhase::Cancelled => &mut self.cancelled,
        }
    }

    /// Units that hold resources.
    #[must_use]
    pub const fn active(&self) -> u64 {
        self.placed + self.running + self.stopping
    }

    /// Units that have not reached their end.
    #[must_use]
    pub const fn live(&self) -> u64 {
        self.waiting + self.active()
    }

    /// All units.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.live() + self.succeeded + self.failed + self.cancelled
    }
}
