//! Commands about health: findings, repairs, checks and rules.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::health::{Component, Finding, WorkStep};
use crate::ids::{HostId, LeadershipEpoch, RequestKey};
use crate::time::TimeMs;

/// A command about health.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HealthCommand {
    /// Findings reported by a worker.
    Report {
        /// The leader that received it.
        leader: LeadershipEpoch,
        /// The host.
        host: HostId,
        /// Start counter of the agent that reported it: findings are numbered within one incarnation.
        incarnation: u64,
        /// Findings in the order of their numbers, at most `FINDINGS_PER_REPORT_MAX`. Those already applied
        /// have no effect.
        findings: Vec<Finding>,
    },
    /// A repair or a check began, or finished.
    Work {
        /// The leader that started it or received its result.
        leader: LeadershipEpoch,
        /// The component.
        component: Component,
        /// New stage of the repair or check.
        step: WorkStep,
        /// Start of the component's phase that this refers to; the command is rejected if the component has
        /// left that phase.
        since: TimeMs,
        /// What was done or observed, for operators.
        evidence: String,
    },
    /// Timed transitions are due: the end of probations, incidents and tripped breakers.
    Tick {
        /// The leader that proposed it.
        leader: LeadershipEpoch,
    },
    /// Drains and checks a host that fails more often than others, if it still does.
    DrainLemon {
        /// The leader that proposed it.
        leader: LeadershipEpoch,
        /// The host.
        host: HostId,
    },
    /// A worker has restarted the services of a rule, or tried to.
    Restarted {
        /// The leader that received the report.
        leader: LeadershipEpoch,
        /// The host.
        host: HostId,
        /// The rule.
        rule: String,
        /// Time of the order; the command is rejected if that order is no longer current.
        since: TimeMs,
        /// Whether the restart itself succeeded. Whether it helped follows from later readings.
        worked: bool,
        /// What was done, for operators.
        evidence: String,
    },
    /// Replaces the rules.
    SetRules {
        /// Idempotency key.
        request: RequestKey,
        /// User who issued the command.
        author: String,
        /// Text of a rule file, including the meanings of error codes.
        text: Arc<str>,
        /// Version of a rule file shipped with Muster, which newer versions replace. `None` for a custom
        /// file.
        shipped: Option<u32>,
    },
    /// Installs the rules shipped with the leader's build, which are newer than the shipped rules in force.
    /// Custom rules stay.
    ShipRules {
        /// The leader of that build.
        leader: LeadershipEpoch,
        /// Version of the shipped rule file.
        version: u32,
        /// The file.
        text: Arc<str>,
    },
    /// Resets a tripped breaker after an operator has looked at the pool.
    ResetBreaker {
        /// Idempotency key.
        request: RequestKey,
        /// User who issued the command.
        author: String,
        /// Name of the pool.
        pool: String,
    },
}

impl HealthCommand {
    /// Epoch of the leader that issues it; `None` for commands of users.
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

    /// Key of the client's request; `None` for commands of the leader.
    pub const fn request_mut(&mut self) -> Option<&mut RequestKey> {
        match self {
            Self::SetRules { request, .. } | Self::ResetBreaker { request, .. } => Some(request),
            Self::Report { .. }
            | Self::Work { .. }
            | Self::Tick { .. }
            | Self::DrainLemon { .. }
            | Self::Restarted { .. }
            | Self::ShipRules { .. } => None,
        }
    }
}
