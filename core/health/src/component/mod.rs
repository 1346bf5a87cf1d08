//! State machine of a GPU, an adapter or a host: one table of legal transitions, strikes, waits and
//! probation.
//!
//! It holds the cluster's decision, as opposed to a worker's observation. Every change carries its actor,
//! rule, evidence and time.

mod condition;
mod ladder;
mod pending;
mod strikes;
mod suspected;
mod transitions;
mod withdrawal;

use muster_model::named_enum;
use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

pub use self::condition::{ChangeRejected, Condition, Mute, Outcome, Restart, Restriction};
pub use self::ladder::{REPAIRS_KEPT_MAX, Repairs};
pub use self::strikes::{RecoveryLimits, Strikes};
pub use self::suspected::Suspected;
pub use self::transitions::{TRANSITIONS, next};

named_enum! {
    /// Event of a component.
    Event {
        /// A rule suspects it.
        Suspect = "suspect",
        /// The finding is over.
        Clear = "clear",
        /// A rule requires it to be drained.
        Drain = "drain",
        /// A rule takes it out of placement.
        Block = "block",
        /// A rule requires its replacement.
        Condemn = "condemn",
        /// Nothing runs on it any more.
        Drained = "drained",
        /// A repair started.
        RepairBegan = "repair_began",
        /// A repair succeeded.
        RepairDone = "repair_done",
        /// A repair failed.
        RepairFailed = "repair_failed",
        /// An active check started.
        CheckBegan = "check_began",
        /// An active check passed.
        CheckPassed = "check_passed",
        /// An active check failed, or timed out.
        CheckFailed = "check_failed",
        /// Its probation is over.
        ProbationPassed = "probation_passed",
        /// It failed in probation.
        ProbationFailed = "probation_failed",
        /// An admin's block expired.
        Expired = "expired",
        /// An admin takes it out of placement.
        AdminBlock = "admin_block",
        /// An admin drains it.
        AdminDrain = "admin_drain",
        /// An admin unblocks it.
        AdminUnblock = "admin_unblock",
        /// An admin returns it to its vendor.
        AdminCondemn = "admin_condemn",
    }
}

impl Event {
    /// Whether it is an action of an admin.
    #[must_use]
    pub const fn is_admins(self) -> bool {
        matches!(
            self,
            Self::AdminBlock | Self::AdminDrain | Self::AdminUnblock | Self::AdminCondemn
        )
    }

    /// Whether it reports a fault or a suspicion.
    #[must_use]
    pub const fn is_accusation(self) -> bool {
        matches!(
            self,
            Self::Suspect | Self::Drain | Self::Block | Self::Condemn | Self::ProbationFailed
        )
    }

    /// Whether it takes the component out of placement for a fault.
    #[must_use]
    pub const fn is_fault(self) -> bool {
        self.is_accusation() && !matches!(self, Self::Suspect)
    }

    /// How far it takes a component out of service; 0 if it is not an accusation.
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

/// Actor of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Actor {
    /// A rule of the set.
    Rule(String),
    /// A check or a repair, by name.
    Check(String),
    /// The passage of time.
    Time,
    /// An admin, by name.
    Admin(String),
}

impl Actor {
    /// Whether it is an admin.
    #[must_use]
    pub const fn is_admin(&self) -> bool {
        matches!(self, Self::Admin(_))
    }
}

/// A change, as requested and as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The event.
    pub event: Event,
    /// The actor.
    pub actor: Actor,
    /// Name of the health rule; empty for admins and repairs.
    pub rule: String,
    /// The raw line, the reading, or an admin's reason.
    pub evidence: String,
    /// Time of the change.
    pub at: TimeMs,
    /// Whether it counts as a strike; incidents of a rack or of storage do not.
    pub is_strike: bool,
    /// Expiry of an admin's block.
    pub expires_at: Option<TimeMs>,
    /// Whether only an operator can unblock it, as its rule requires. Not serialized if false, as before the
    /// field was introduced.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_hand: bool,
}

#[cfg(test)]
mod tests;
