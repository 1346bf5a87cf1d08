//! Trials: one fault each, with its permitted effects on a training.

use std::ops::RangeInclusive;

use crate::cluster::{Direction, Fault};

/// A fault with the number of attempts that the training may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The fault.
    pub fault: Fault,
    attempts_min: usize,
    attempts_max: usize,
}

impl Trial {
    /// All trials.
    pub const ALL: [Self; 16] = [
        Self::with_attempts(Fault::AgentKilled, 1, 1),
        Self::with_attempts(Fault::AgentUpgraded, 1, 1),
        Self::with_attempts(Fault::SupervisorKilled, 2, 2),
        Self::with_attempts(Fault::GpuFaulted, 2, 2),
        Self::with_attempts(Fault::HostCutBriefly(Direction::Both), 1, 1),
        Self::with_attempts(Fault::HostCutBriefly(Direction::Out), 1, 1),
        Self::with_attempts(Fault::HostCutBriefly(Direction::In), 1, 1),
        // Members on other hosts detect it first, and may be restarted before the host counts as lost.
        Self::with_attempts(Fault::HostCut(Direction::Both), 2, 3),
        Self::with_attempts(Fault::HostCut(Direction::Out), 2, 3),
        Self::with_attempts(Fault::HostCut(Direction::In), 2, 3),
        Self::with_attempts(Fault::HostFrozen, 2, 3),
        Self::with_attempts(Fault::LeaderKilledInPreemption, 2, 2),
        Self::with_attempts(Fault::CheckpointDamaged, 2, 2),
        // Every attempt ends when it cannot save.
        Self::with_attempts(Fault::CheckpointDiskFull, 2, 6),
        Self::with_attempts(Fault::HostDiskFull, 1, 1),
        Self::with_attempts(Fault::StopIgnored, 2, 2),
    ];

    const fn with_attempts(fault: Fault, attempts_min: usize, attempts_max: usize) -> Self {
        Self {
            fault,
            attempts_min,
            attempts_max,
        }
    }

    /// The trial of the fault with a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|trial| trial.fault.name() == name)
    }

    /// Permitted range of the number of attempts.
    #[must_use]
    pub(super) const fn attempts(self) -> RangeInclusive<usize> {
        self.attempts_min..=self.attempts_max
    }

    /// Whether the training ignores stop requests.
    #[must_use]
    pub(super) const fn is_stubborn(self) -> bool {
        matches!(self.fault, Fault::StopIgnored)
    }

    /// Whether a job of a higher priority may preempt the training.
    #[must_use]
    pub(super) const fn preempts(self) -> bool {
        matches!(
            self.fault,
            Fault::StopIgnored | Fault::LeaderKilledInPreemption
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for trial in Trial::ALL {
            assert_eq!(Trial::named(trial.fault.name()), Some(trial));
        }
        assert_eq!(Trial::named("leader-killed"), None);
    }
}
