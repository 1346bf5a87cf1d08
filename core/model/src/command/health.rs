//! What is found, decided, repaired and configured about health.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::health::{Component, Finding, WorkStep};
use crate::ids::{HostId, LeadershipEpoch, RequestId};
use crate::time::TimeMs;

/// A command about health. Since command format 4.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HealthCommand {
    /// A worker reported what it found.
    Report {
        /// The leader that received it.
        leader: LeadershipEpoch,
        /// Whose.
        host: HostId,
        /// Counts the starts of the agent that found it: findings are numbered within one.
        incarnation: u64,
        /// In the order of their numbers, at most `FINDINGS_PER_REPORT_MAX`. Those that were heard before do nothing.
        findings: Vec<Finding>,
    },
    /// A repair or a check begins, or came to its end.
    Work {
        /// The leader that began it or heard of it.
        leader: LeadershipEpoch,
        /// Of what.
        component: Component,
        /// What became of it.
        step: WorkStep,
        /// Since when the component has been where this is about; another one is refused: it is about something that is
        /// over.
        since: TimeMs,
        /// What was done or seen, for people.
        evidence: String,
    },
    /// Time has brought something: probations, incidents and tripped breakers end.
    Tick {
        /// The leader that noticed.
        leader: LeadershipEpoch,
    },
    /// A host fails more often than others: it is drained and checked, if it still does.
    DrainLemon {
        /// The leader that noticed.
        leader: LeadershipEpoch,
        /// Which.
        host: HostId,
    },
    /// A worker has started the services of a rule again, or tried to.
    Restarted {
        /// The leader that heard of it.
        leader: LeadershipEpoch,
        /// Where.
        host: HostId,
        /// The rule.
        rule: String,
        /// When it was told to; another one is refused: it is about something that is over.
        since: TimeMs,
        /// Whether that worked. Whether it helped is read.
        worked: bool,
        /// What was done, for people.
        evidence: String,
    },
    /// Replaces the rules.
    SetRules {
        /// Idempotency key.
        request: RequestId,
        /// Who changes them.
        author: String,
        /// A rule file, with what codes mean.
        text: Arc<str>,
        /// Which of the files that ship with Muster this is: newer ones take its place. None if somebody wrote it.
        shipped: Option<u32>,
    },
    /// The leader's build ships with newer rules than those in force, and nobody has written others.
    ShipRules {
        /// The leader of that build.
        leader: LeadershipEpoch,
        /// Which of the files that ship with Muster.
        version: u32,
        /// The file.
        text: Arc<str>,
    },
    /// A person has looked at a pool whose breaker is tripped.
    ResetBreaker {
        /// Idempotency key.
        request: RequestId,
        /// Who.
        author: String,
        /// Which pool.
        pool: String,
    },
}

impl HealthCommand {
    /// The leadership that gives it; `None` for those that people give.
    #[must_use]
    pub const fn leader(&self) -> Option<LeadershipEpoch> {
        match self {
            Self::Report { leader, .. }
            | Self::Work { leader, .. }
            | Self::Tick { leader }
            | Self::DrainLemon { leader, .. }
            | Self::Restarted { leader, .. }
            | Self::ShipRules { leader, .. } => Some(*leader),
            Self::SetRules { .. } | Self::ResetBreaker { .. } => None,
        }
    }
}
