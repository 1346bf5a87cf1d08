//! Table of legal transitions for tasks, units and jobs.
//!
//! `apply` consults it before it changes a phase. Terminal phases are absorbing.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Phase of one task of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaskPhase {
    /// Allocated; its worker has not confirmed a start yet.
    Assigned,
    /// Its process is running.
    Running,
    /// Its process ended and the worker reported the exit.
    Exited,
    /// Its worker no longer holds it (never started, or the worker lost it).
    Gone,
    /// Its worker was silent for longer than the task's lease: dead by contract.
    Fenced,
    /// It has everything it needs, and waits for the rest of its gang.
    Prepared,
}

impl TaskPhase {
    /// True once the task can no longer use its resources.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Exited | Self::Gone | Self::Fenced)
    }

    /// True once its process is running, or has run.
    #[must_use]
    pub const fn has_begun(self) -> bool {
        !matches!(self, Self::Assigned | Self::Prepared)
    }

    /// Whether the transition from this phase to `next` is legal.
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

/// Phase of a unit (a gang, or one independent task).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum UnitPhase {
    /// Waits for resources, or for the end of a back-off.
    Waiting,
    /// Has an attempt whose tasks are not all running yet.
    Placed,
    /// Has an attempt whose tasks are all running (or have succeeded).
    Running,
    /// Its attempt was asked to stop; its resources are held until every task is terminal.
    Stopping,
    /// Succeeded.
    Succeeded,
    /// Failed permanently.
    Failed,
    /// Cancelled on request.
    Cancelled,
}

impl UnitPhase {
    /// True for the terminal phases.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }

    /// True while the unit holds an allocation.
    #[must_use]
    pub const fn holds_resources(self) -> bool {
        matches!(self, Self::Placed | Self::Running | Self::Stopping)
    }

    /// Whether the transition from this phase to `next` is legal.
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

/// Phase of a job as shown to users; derived from its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum JobPhase {
    /// No unit holds resources, some wait.
    Queued,
    /// At least one unit holds resources.
    Running,
    /// Cancellation was requested, and some units still hold resources.
    Cancelling,
    /// Every unit succeeded.
    Succeeded,
    /// Every unit ended, at least one failed.
    Failed,
    /// Cancelled on request.
    Cancelled,
}

impl JobPhase {
    /// True for the terminal phases.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed | Self::Cancelled)
    }
}

impl fmt::Display for JobPhase {
    /// The word shown to users, in lowercase.
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
