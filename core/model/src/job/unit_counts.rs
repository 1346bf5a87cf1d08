//! Number of units of a job by phase.

use serde::{Deserialize, Serialize};

use crate::lifecycle::UnitPhase;

/// Number of units of a job in each phase; they add up to `JobSpec::units`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitCounts {
    /// Waiting, with or without a history.
    pub waiting: u64,
    /// Allocated, not all running.
    pub placed: u64,
    /// Running.
    pub running: u64,
    /// Ordered to stop.
    pub stopping: u64,
    /// Succeeded.
    pub succeeded: u64,
    /// Failed.
    pub failed: u64,
    /// Cancelled.
    pub cancelled: u64,
}

impl UnitCounts {
    /// Returns the counter of a phase.
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

    /// Returns the number of units that hold resources.
    #[must_use]
    pub const fn active(&self) -> u64 {
        self.placed + self.running + self.stopping
    }

    /// Returns the number of units that have not ended.
    #[must_use]
    pub const fn live(&self) -> u64 {
        self.waiting + self.active()
    }

    /// Returns the number of all units.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.live() + self.succeeded + self.failed + self.cancelled
    }
}
