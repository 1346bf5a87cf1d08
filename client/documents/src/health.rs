//! Health of GPUs, adapters and hosts, and the effect of health rules.

use muster_proto::v1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::instant::Instant;
use crate::name::component_name;

/// Health phase of a host or GPU, and the rules behind it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HealthState {
    /// As `phase` of a component.
    pub health_phase: String,
    /// The rule that caused the phase; empty if none did.
    pub health_rule: String,
    pub restrictions: Vec<Restriction>,
}

impl HealthState {
    pub(crate) fn new(phase: String, rule: String, restrictions: Vec<v1::Restriction>) -> Self {
        Self {
            health_phase: phase,
            health_rule: rule,
            restrictions: restrictions.into_iter().map(Into::into).collect(),
        }
    }

    /// Whether it keeps off `gangs` or `everything`.
    #[must_use]
    pub fn keeps_off(&self, what: &str) -> bool {
        self.restrictions.iter().any(|it| it.what == what)
    }

    /// Reasons of its state, unless a block gives them: a component that still accepts work has no block.
    #[must_use]
    pub fn reasons(&self) -> Vec<String> {
        let accepts_work = matches!(self.health_phase.as_str(), "suspect" | "probation");
        let phase = (accepts_work && !self.health_rule.is_empty())
            .then(|| format!("{} by rule {}", self.health_phase, self.health_rule));
        let gangs = self
            .restrictions
            .iter()
            .filter(|it| it.what == "gangs")
            .map(|it| format!("no gangs by rule {}: {}", it.rule, it.evidence));
        phase.into_iter().chain(gangs).collect()
    }
}

documents! {
    /// A placement restriction by a rule, for as long as a component is degraded.
    pub struct Restriction from v1::Restriction {
        rule: String,
        /// `gangs` or `everything`.
        what: String,
        evidence: String,
        since: Instant = since_ms,
    }

    /// A change of a component's health phase.
    pub struct Change from v1::HealthChange {
        event: String,
        actor: String,
        evidence: String,
        at: Instant = at_ms,
    }
}

/// A GPU, an adapter, a host or a rack with a health record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Component {
    pub component: String,
    pub host: String,
    pub gpu_index: Option<u32>,
    /// `healthy`, `suspect`, `draining`, `draining(admin)`, `blocked(auto)`, `blocked(admin)`, `repairing`, `checking`,
    /// `probation` or `rma`.
    pub phase: String,
    pub since: Instant,
    /// Out of placement: time from which a passed check may readmit it. On probation: its end.
    pub ready_at: Option<Instant>,
    /// Failures within its last 30 clean days.
    pub strikes: u32,
    /// Whether only an operator can return it to service.
    pub needs_operator: bool,
    /// The pending or running repair or check; empty if there is none.
    pub pending_action: String,
    pub restrictions: Vec<Restriction>,
    /// Rules overruled here by an operator.
    pub muted_rules: Vec<String>,
    /// Oldest first.
    pub history: Vec<Change>,
}

impl From<v1::ComponentHealth> for Component {
    fn from(wire: v1::ComponentHealth) -> Self {
        let instant = |ms| Instant { ms };
        Self {
            component: component_name(wire.component.as_ref(), &wire.host),
            host: wire.host,
            gpu_index: wire.gpu_index,
            phase: wire.phase,
            since: instant(wire.since_ms),
            ready_at: wire.ready_at_ms.map(instant),
            strikes: wire.strikes,
            needs_operator: wire.by_hand,
            pending_action: wire.wanted,
            restrictions: wire.restrictions.into_iter().map(Into::into).collect(),
            muted_rules: wire.muted_rules,
            history: wire.history.into_iter().map(Into::into).collect(),
        }
    }
}

/// Effect of new rules on recent findings, applied or in a dry run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RulesEffect {
    pub revision: u64,
    pub dry_run: bool,
    pub rules: u32,
    pub findings: u32,
    pub findings_without_rule: u32,
    /// Blocks that the rules would have set, and the former ones would not.
    pub added: Vec<RuleBlock>,
    pub dropped: Vec<RuleBlock>,
    pub kept: u32,
    /// Time of the oldest finding.
    pub findings_since: Option<Instant>,
    /// Rules that the findings cannot judge: workers report only readings beyond the current thresholds.
    pub not_evaluated: Vec<String>,
}

/// A block that rules would have set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RuleBlock {
    pub component: String,
    pub rule: String,
    pub scope: String,
    pub at: Instant,
    pub findings: u32,
    pub evidence: String,
}

impl From<v1::WouldBlock> for RuleBlock {
    fn from(wire: v1::WouldBlock) -> Self {
        Self {
            component: component_name(wire.component.as_ref(), &wire.host),
            rule: wire.rule,
            scope: wire.scope,
            at: Instant { ms: wire.at_ms },
            findings: wire.findings,
            evidence: wire.evidence,
        }
    }
}

impl RulesEffect {
    /// The cluster's answer.
    #[must_use]
    pub fn new(dry_run: bool, answer: v1::SetHealthRulesResponse) -> Self {
        Self {
            revision: answer.revision,
            dry_run,
            rules: answer.rules,
            findings: answer.findings,
            findings_without_rule: answer.findings_without_rule,
            added: answer.added.into_iter().map(Into::into).collect(),
            dropped: answer.dropped.into_iter().map(Into::into).collect(),
            kept: answer.kept,
            findings_since: answer.findings_since_ms.map(|ms| Instant { ms }),
            not_evaluated: answer.not_evaluated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(phase: &str, rule: &str, what: &[&str]) -> HealthState {
        let restrictions = what.iter().map(|what| v1::Restriction {
            rule: "flapping".to_owned(),
            what: (*what).to_owned(),
            evidence: "it fell silent 3 times".to_owned(),
            since_ms: 0,
        });
        HealthState::new(phase.to_owned(), rule.to_owned(), restrictions.collect())
    }

    #[test]
    fn a_usable_component_shows_why_it_is_suspect_or_restricted() {
        assert_eq!(
            state("suspect", "history", &[]).reasons(),
            ["suspect by rule history"]
        );
        assert_eq!(
            state("healthy", "", &["gangs"]).reasons(),
            ["no gangs by rule flapping: it fell silent 3 times"]
        );
        // The rest is in its block.
        assert!(state("checking", "history", &[]).reasons().is_empty());
        assert!(state("healthy", "", &[]).reasons().is_empty());
    }
}
