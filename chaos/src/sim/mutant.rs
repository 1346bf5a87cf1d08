//! Known bugs, switched on to prove that the judges find them.

use super::report::Violation;
use crate::check::LostWrite;

/// A known bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Replicas acknowledge before anything is synced.
    AckBeforeSync,
    /// Supervisors let tasks run three times as long as their lease.
    LongLease,
    /// Agents act on whatever order arrives last, whoever sent it and however old it is.
    ObeyOldOrders,
    /// Agents start tasks without a journal of what they started.
    ForgetfulJournal,
    /// Supervisors let members of gangs begin without waiting for the others.
    BeginsAlone,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 5] = [
        Self::AckBeforeSync,
        Self::LongLease,
        Self::ObeyOldOrders,
        Self::ForgetfulJournal,
        Self::BeginsAlone,
    ];

    /// Whether a violation is what this bug must show as; anything else would be found by luck.
    #[must_use]
    pub const fn shows_as(self, violation: &Violation) -> bool {
        match self {
            Self::AckBeforeSync => matches!(
                violation,
                Violation::Lost(LostWrite::Job(_) | LostWrite::Unseen { .. })
            ),
            Self::LongLease | Self::ForgetfulJournal => matches!(violation, Violation::Overlap(_)),
            Self::ObeyOldOrders => matches!(violation, Violation::Disobedience(_)),
            Self::BeginsAlone => matches!(violation, Violation::EarlyStart(_)),
        }
    }

    /// Whether a world goes on although something was found: lost writes show in the end, when every replica
    /// that disagrees has long been noticed.
    #[must_use]
    pub fn goes_on(mutant: Option<Self>) -> bool {
        mutant == Some(Self::AckBeforeSync)
    }

    /// How many times longer than their lease supervisors let tasks run.
    #[must_use]
    pub const fn lease_stretch(mutant: Option<Self>) -> u64 {
        match mutant {
            Some(Self::LongLease) => 3,
            _ => 1,
        }
    }
}
