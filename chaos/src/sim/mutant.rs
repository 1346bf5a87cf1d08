//! Mutants: known bugs that are switched on to prove that the checkers find them.

use serde::{Deserialize, Serialize};

use crate::checkers::{DeliveryError, LostWrite, Misplaced, RaftViolation};
use crate::sim::disk::FalseDurability;
use crate::sim::faults::plan::losses;
use crate::sim::results::report::Violation;

/// A known bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mutant {
    /// Replicas acknowledge writes before they are synced.
    AckBeforeSync,
    /// Supervisors let tasks run three times as long as their lease.
    LongLease,
    /// Agents act on the order that arrives last, whatever its sender and age.
    ObeyOldOrders,
    /// Agents do not journal the tasks that they start.
    ForgetfulJournal,
    /// Supervisors start members of gangs without waiting for the others.
    BeginsAlone,
    /// Replicas purge the log before the covering snapshot is durable.
    SnapshotBeforeSync,
    /// Replicas answer linearizable reads from local state, without confirming their leadership.
    StaleReads,
    /// Supervisors report killed tasks as successful.
    FalseSuccess,
    /// Supervisors measure leases by a clock that can be set.
    WallClockLeases,
    /// Agents release GPUs held by a task that cannot be killed.
    FreesHungGpus,
    /// Replicas forget their newest votes.
    ForgetsVote,
    /// Replicas ignore a failed write or sync of their log.
    IgnoresDiskErrors,
    /// Watchers resume one revision too late.
    SkipsOnResume,
    /// Agents do not restore the findings of their predecessors.
    ForgetfulNotes,
    /// A group restored from a backup does not wait for the leases of later tasks of the old one.
    RestoresAtOnce,
    /// A group restored from a backup chooses revisions above those in the backup, but not above those of
    /// another group restored from it before.
    RestoresLow,
}

impl Mutant {
    /// All mutants.
    pub const ALL: [Self; 16] = [
        Self::AckBeforeSync,
        Self::LongLease,
        Self::ObeyOldOrders,
        Self::ForgetfulJournal,
        Self::BeginsAlone,
        Self::SnapshotBeforeSync,
        Self::StaleReads,
        Self::FalseSuccess,
        Self::WallClockLeases,
        Self::FreesHungGpus,
        Self::ForgetsVote,
        Self::IgnoresDiskErrors,
        Self::SkipsOnResume,
        Self::ForgetfulNotes,
        Self::RestoresAtOnce,
        Self::RestoresLow,
    ];

    /// Name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AckBeforeSync => "ack-before-sync",
            Self::LongLease => "long-lease",
            Self::ObeyOldOrders => "obey-old-orders",
            Self::ForgetfulJournal => "forgetful-journal",
            Self::BeginsAlone => "begins-alone",
            Self::SnapshotBeforeSync => "snapshot-before-sync",
            Self::StaleReads => "stale-reads",
            Self::FalseSuccess => "false-success",
            Self::WallClockLeases => "wall-clock-leases",
            Self::FreesHungGpus => "frees-hung-gpus",
            Self::ForgetsVote => "forgets-vote",
            Self::IgnoresDiskErrors => "ignores-disk-errors",
            Self::SkipsOnResume => "skips-on-resume",
            Self::ForgetfulNotes => "forgetful-notes",
            Self::RestoresAtOnce => "restores-at-once",
            Self::RestoresLow => "restores-low",
        }
    }

    /// Parses a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| mutant.name() == name)
    }

    /// Whether the world of a seed can reveal this bug.
    #[must_use]
    pub fn can_show_in(self, seed: u64) -> bool {
        let losses_min = match self {
            Self::RestoresAtOnce => 1,
            Self::RestoresLow => 2,
            _ => 0,
        };
        losses(seed) >= losses_min
    }

    /// Whether a violation is the expected one for this bug; any other would be found by chance.
    #[must_use]
    pub const fn shows_as(self, violation: &Violation) -> bool {
        match self {
            Self::AckBeforeSync => matches!(
                violation,
                Violation::Lost(LostWrite::Job(_) | LostWrite::Unseen { .. })
            ),
            Self::LongLease
            | Self::ForgetfulJournal
            | Self::WallClockLeases
            | Self::FreesHungGpus
            | Self::RestoresAtOnce => matches!(violation, Violation::Overlap(_)),
            Self::ObeyOldOrders => matches!(violation, Violation::Disobedience(_)),
            Self::BeginsAlone => matches!(violation, Violation::EarlyStart(_)),
            Self::SnapshotBeforeSync => matches!(violation, Violation::Replica(_)),
            // Anything compared with the previous group: its revisions, or its terms.
            Self::RestoresLow => {
                matches!(violation, Violation::Replica(_) | Violation::Raft(_))
            }
            // A replica refuses a vote that is older than its log; if the log does not show it, two leaders
            // are elected in one term.
            Self::ForgetsVote => matches!(
                violation,
                Violation::Replica(_) | Violation::Raft(RaftViolation::TwoLeaders { .. })
            ),
            // Unless it is elected before, a replica refuses a log with a hole.
            Self::IgnoresDiskErrors => matches!(
                violation,
                Violation::Replica(_) | Violation::Lost(_) | Violation::Raft(_)
            ),
            Self::SkipsOnResume => {
                matches!(violation, Violation::Watch(DeliveryError::Missed { .. }))
            }
            Self::ForgetfulNotes => {
                matches!(violation, Violation::Misplaced(Misplaced::StaleHold { .. }))
            }
            Self::StaleReads => matches!(violation, Violation::Lost(LostWrite::Unseen { .. })),
            Self::FalseSuccess => matches!(violation, Violation::Phantom(_)),
        }
    }

    /// Whether a world continues after a violation: lost writes show only in the end, after disagreeing
    /// replicas have long been noticed.
    #[must_use]
    pub fn continues_after_violation(mutant: Option<Self>) -> bool {
        mutant == Some(Self::AckBeforeSync)
    }

    /// Effect of this bug on disks.
    #[must_use]
    pub const fn deceit(mutant: Option<Self>) -> FalseDurability {
        match mutant {
            Some(Self::AckBeforeSync) => FalseDurability::Syncs,
            Some(Self::SnapshotBeforeSync) => FalseDurability::Snapshots,
            Some(Self::ForgetsVote) => FalseDurability::Votes,
            Some(Self::IgnoresDiskErrors) => FalseDurability::Errors,
            _ => FalseDurability::None,
        }
    }

    /// Factor by which supervisors exceed the lease of tasks.
    #[must_use]
    pub const fn lease_stretch(mutant: Option<Self>) -> u64 {
        match mutant {
            Some(Self::LongLease) => 3,
            _ => 1,
        }
    }
}
