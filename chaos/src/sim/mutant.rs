//! Known bugs, switched on to prove that the judges find them.

use serde::{Deserialize, Serialize};

use crate::check::{LostWrite, Misplaced, RaftBreach, WatchGap};
use crate::sim::disk::Deceit;
use crate::sim::plan::losses;
use crate::sim::report::Violation;

/// A known bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
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
    /// Replicas drop the log before the snapshot that stands for it is durable.
    SnapshotBeforeSync,
    /// Replicas answer linearizable reads from what they know, without asking whether somebody else leads.
    StaleReads,
    /// Supervisors say of tasks that they killed that they ended well.
    FalseSuccess,
    /// Supervisors measure leases by a clock that can be set.
    WallClockLeases,
    /// Agents give GPUs back that a task holds which cannot be killed.
    FreesHungGpus,
    /// Replicas forget the newest votes that they gave.
    ForgetsVote,
    /// Replicas go on after a write or sync of their log has failed, as if it had not.
    IgnoresDiskErrors,
    /// Watchers go on one revision too late where they were cut off.
    SkipsOnResume,
    /// Agents do not know what the ones before them found of their hosts.
    ForgetfulNotes,
    /// A group that goes on from a backup does not wait for the leases of whatever else the old one had begun.
    RestoresAtOnce,
    /// A group that goes on from a backup is above what that knows, and not above another group that went on from it before.
    RestoresLow,
}

impl Mutant {
    /// All of them.
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

    /// Its name on the command line.
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

    /// The bug of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mutant| mutant.name() == name)
    }

    /// Whether a seed's world has what it takes to show this bug.
    #[must_use]
    pub fn can_show_in(self, seed: u64) -> bool {
        let losses_min = match self {
            Self::RestoresAtOnce => 1,
            Self::RestoresLow => 2,
            _ => 0,
        };
        losses(seed) >= losses_min
    }

    /// Whether a violation is what this bug must show as; anything else would be found by luck.
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
            // Whatever is compared with the group before: its revisions, or its terms.
            Self::RestoresLow => {
                matches!(violation, Violation::Replica(_) | Violation::Raft(_))
            }
            // A replica refuses a vote that is older than its log; where the log does not tell, two are elected in one term.
            Self::ForgetsVote => matches!(
                violation,
                Violation::Replica(_) | Violation::Raft(RaftBreach::TwoLeaders { .. })
            ),
            // Unless it is elected before, a replica refuses a log with a hole.
            Self::IgnoresDiskErrors => matches!(
                violation,
                Violation::Replica(_) | Violation::Lost(_) | Violation::Raft(_)
            ),
            Self::SkipsOnResume => matches!(violation, Violation::Watch(WatchGap::Missed { .. })),
            Self::ForgetfulNotes => {
                matches!(violation, Violation::Misplaced(Misplaced::Forgotten { .. }))
            }
            Self::StaleReads => matches!(violation, Violation::Lost(LostWrite::Unseen { .. })),
            Self::FalseSuccess => matches!(violation, Violation::Phantom(_)),
        }
    }

    /// Whether a world goes on although something was found: lost writes show in the end, when every replica
    /// that disagrees has long been noticed.
    #[must_use]
    pub fn goes_on(mutant: Option<Self>) -> bool {
        mutant == Some(Self::AckBeforeSync)
    }

    /// What this bug does to disks.
    #[must_use]
    pub const fn deceit(mutant: Option<Self>) -> Deceit {
        match mutant {
            Some(Self::AckBeforeSync) => Deceit::Syncs,
            Some(Self::SnapshotBeforeSync) => Deceit::Snapshots,
            Some(Self::ForgetsVote) => Deceit::Votes,
            Some(Self::IgnoresDiskErrors) => Deceit::Errors,
            _ => Deceit::None,
        }
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
