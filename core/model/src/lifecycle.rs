//! The one table of legal transitions for tasks, units and jobs.
//!
//! `apply` asks it before it changes a phase. Terminal phases are absorbing.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where one task of an attempt stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaskPhase {
    /// Allocated; its worker has not confirmed a start yet.
    Assigned,
    /// Its process runs.
    Running,
    /// Its process ended and the worker reported how.
    Exited,
    /// Its worker is known to hold it no longer (never started, or the worker forgot it).
    Gone,
    /// Its worker was silent for longer than the task's lease: by contract it is dead.
    Fenced,
    /// All that it needs is there, and it waits for the rest of its gang. Since command format 4.
    Prepared,
}

impl TaskPhase {
    /// True once the task can no longer touch its resources.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Exited | Self::Gone | Self::Fenced)
    }

    /// True once its process runs, or has run.
    #[must_use]
    pub const fn has_begun(self) -> bool {
        !matches!(self, Self::Assigned | Self::Prepared)
    }

    /// Whether a task may go from this phase to `next`.
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        match self {
            Self::Assigned => !matches!(next, Self::Assigned),
            Self::Prepared => matches!(next, Self::Running) || next.is_terminal(),
            Self::Running => next.is_terminal(),
            Self::Exited | Self::Gone | Self::Fenced => false,
        }
    }
}

/// Where a unit (a gang, or one independent task) stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum UnitPhase {
    /// Waits for resources, or for the end of a back-off.
    Waiting,
    /// Has an attempt whose tasks are not all running yet.
    Placed,
    /// Has an attempt whose tasks all run (or have ended well).
    Running,
    /// Its attempt was told to stop; its resources are held until every task is terminal.
    Stopping,
    /// Ended well.
    Succeeded,
    /// Ended badly, for good.
    Failed,
    /// Ended because somebody asked for it.
    Cancelled,
}

impl UnitPhase {
    /// True for the phases that nothing leaves.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    /// True while the unit holds an allocation.
    #[must_use]
    pub const fn holds_resources(self) -> bool {
        matches!(self, Self::Placed | Self::Running | Self::Stopping)
    }

    /// Whether a unit may go from this phase to `next`.
    #[must_use]
    pub const fn may_become(self, next: Self) -> bool {
        match self {
            Self::Waiting => matches!(next, Self::Placed | Self::Failed | Self::Cancelled),
            Self::Placed => !matches!(next, Self::Placed),
            Self::Running => !matches!(next, Self::Placed | Self::Running),
            Self::Stopping => !matches!(next, Self::Placed | Self::Running | Self::Stopping),
            Self::Succeeded | Self::Failed | Self::Cancelled => false,
        }
    }
}

/// Where a job stands, as users see it; derived from its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum JobPhase {
    /// No unit holds resources, some wait.
    Queued,
    /// At least one unit holds resources.
    Running,
    /// Somebody asked for its end, and some units still hold resources.
    Cancelling,
    /// Every unit ended well.
    Succeeded,
    /// Every unit ended, at least one badly.
    Failed,
    /// Ended because somebody asked for it.
    Cancelled,
}

impl JobPhase {
    /// True for the phases that nothing leaves.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

impl fmt::Display for JobPhase {
    /// The word that users meet everywhere: in small letters.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Cancelling => "cancelling",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_phases_absorb() {
        const TASKS: [TaskPhase; 6] = [
            TaskPhase::Assigned,
            TaskPhase::Prepared,
            TaskPhase::Running,
            TaskPhase::Exited,
            TaskPhase::Gone,
            TaskPhase::Fenced,
        ];
        for from in TASKS {
            for to in TASKS {
                assert!(
                    !(from.is_terminal() && from.may_become(to)),
                    "{from:?} -> {to:?}"
                );
            }
        }
    }

    #[test]
    fn only_a_waiting_unit_is_placed() {
        const UNITS: [UnitPhase; 7] = [
            UnitPhase::Waiting,
            UnitPhase::Placed,
            UnitPhase::Running,
            UnitPhase::Stopping,
            UnitPhase::Succeeded,
            UnitPhase::Failed,
            UnitPhase::Cancelled,
        ];
        for from in UNITS {
            assert_eq!(
                from.may_become(UnitPhase::Placed),
                from == UnitPhase::Waiting,
                "{from:?}"
            );
        }
    }
}
