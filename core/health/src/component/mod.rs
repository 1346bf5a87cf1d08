//! Where a GPU, an adapter or a host stands: one table of legal transitions, strikes, waits and probation.
//!
//! What the cluster decided, as opposed to what a worker sees. Every change carries who made it, by which rule, on which
//! evidence and when.

mod condition;
mod excuse;
mod ladder;
mod pending;
mod strikes;
mod suspected;
mod transitions;

use muster_model::time::TimeMs;
use muster_model::word_enum;
use serde::{Deserialize, Serialize};

pub use self::condition::{Condition, Held, Mute, Outcome, Refusal, Restart};
pub use self::ladder::{REPAIRS_KEPT_MAX, Repairs};
pub use self::strikes::{Patience, Strikes};
pub use self::suspected::Suspected;
pub use self::transitions::{TRANSITIONS, next};

word_enum! {
    /// What may happen to a component.
    Event {
        /// A rule suspects it.
        Suspect = "suspect",
        /// What was found is over.
        Clear = "clear",
        /// A rule wants it empty once its tasks have ended.
        Drain = "drain",
        /// A rule takes it out of placement.
        Block = "block",
        /// A rule finds that nothing but an exchange helps.
        Condemn = "condemn",
        /// Nothing runs on it any more.
        Drained = "drained",
        /// A repair began.
        RepairBegan = "repair_began",
        /// A repair is done.
        RepairDone = "repair_done",
        /// A repair failed.
        RepairFailed = "repair_failed",
        /// An active check began.
        CheckBegan = "check_began",
        /// An active check passed.
        CheckPassed = "check_passed",
        /// An active check failed, or did not end in time.
        CheckFailed = "check_failed",
        /// Probation is over.
        ProbationPassed = "probation_passed",
        /// It failed in probation.
        ProbationFailed = "probation_failed",
        /// An admin's block is over by its time.
        Expired = "expired",
        /// An admin takes it out of placement.
        AdminBlock = "admin_block",
        /// An admin wants it empty.
        AdminDrain = "admin_drain",
        /// An admin gives it back.
        AdminUnblock = "admin_unblock",
        /// An admin sends it back to its vendor.
        AdminCondemn = "admin_condemn",
    }
}

impl Event {
    /// Whether only a person makes it happen.
    #[must_use]
    pub const fn is_admins(self) -> bool {
        matches!(
            self,
            Self::AdminBlock | Self::AdminDrain | Self::AdminUnblock | Self::AdminCondemn
        )
    }

    /// Whether it says that something is wrong.
    #[must_use]
    pub const fn is_accusation(self) -> bool {
        matches!(
            self,
            Self::Suspect | Self::Drain | Self::Block | Self::Condemn | Self::ProbationFailed
        )
    }

    /// Whether it takes out of placement for a fault.
    #[must_use]
    pub const fn is_fault(self) -> bool {
        self.is_accusation() && !matches!(self, Self::Suspect)
    }

    /// How far it takes a component out of use; what does not accuse it reaches nowhere.
    const fn reach(self) -> u8 {
        match self {
            Self::Suspect => 1,
            Self::Drain => 2,
            Self::Block | Self::ProbationFailed => 3,
            Self::Condemn | Self::AdminCondemn => 4,
            _ => 0,
        }
    }
}

/// Who makes a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Actor {
    /// A rule of the set.
    Rule(String),
    /// A check or a repair, by its name.
    Check(String),
    /// The passing of time.
    Time,
    /// A person.
    Admin(String),
}

impl Actor {
    /// Whether it is a person.
    #[must_use]
    pub const fn is_admin(&self) -> bool {
        matches!(self, Self::Admin(_))
    }
}

/// A change, as it is asked for and as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// What happens.
    pub event: Event,
    /// By whom.
    pub actor: Actor,
    /// By which rule; empty for people and repairs.
    pub rule: String,
    /// The raw line, the reading, or a person's reason.
    pub evidence: String,
    /// When.
    pub at: TimeMs,
    /// Whether it counts as a strike; incidents of a rack or of storage do not.
    pub is_strike: bool,
    /// When an admin's block ends by itself.
    pub expires_at: Option<TimeMs>,
    /// Whether only a person gives back what it takes out of placement: its rule says so. Not written where it does not, as
    /// before there was such a field.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_hand: bool,
}

#[cfg(test)]
mod tests;
