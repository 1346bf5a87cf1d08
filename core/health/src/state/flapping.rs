//! Flapping hosts.

use muster_model::health::{Component, Phase};
use muster_model::ids::HostId;
use muster_model::time::{MINUTE_MS, TimeMs};

use crate::component::Restriction;
use crate::guard_rails::Group;
use crate::rules::{FLAPPING, Mode, RuleSet};
use crate::state::propose::IncidentRelation;
use crate::state::{Effect, HealthState};

impl HealthState {
    /// A host fell silent. This is never a strike; together with many others, it is an incident. `groups` are
    /// the groups of the host with their sizes.
    pub fn fell_silent(
        &mut self,
        rules: &RuleSet,
        host: HostId,
        groups: &[(Group, u32)],
        now: TimeMs,
    ) -> Vec<Effect> {
        let phase = self.phase(&Component::Host(host));
        // A host that an operator took out of service, or that is rebooting, is expected to be silent.
        let is_expected = phase.is_admins() || phase == Phase::Repairing;
        let among = match is_expected {
            true => None,
            false => self.record_failure(now, host, groups),
        };
        let mut effects = match among {
            Some(IncidentRelation::New(incident)) => vec![Effect::Incident(incident)],
            Some(IncidentRelation::Known) | None => Vec::new(),
        };
        effects.extend(self.flaps_again(rules, host, now));
        effects
    }

    fn flaps_again(&mut self, rules: &RuleSet, host: HostId, now: TimeMs) -> Option<Effect> {
        let often = rules.often_or_usual(FLAPPING);
        let until = self.flaps.entry(host).or_default().fell_silent(often, now);
        let rule = rules.rule(FLAPPING)?;
        if rule.mode != Mode::Enforce {
            return None;
        }
        let minutes = until?.since(now) / MINUTE_MS;
        let held = Restriction {
            rule: FLAPPING.to_owned(),
            what: rule.degraded.restriction()?,
            evidence: format!(
                "fell silent {} times within {}; hold-down of {minutes} min",
                often.times,
                often.span()
            ),
            since: now,
            restart: None,
        };
        self.restrict(&Component::Host(host), held)
    }

    /// Hosts whose hold-down is over.
    pub(super) fn end_hold_downs(&mut self, now: TimeMs) -> Vec<Effect> {
        let is_due = |until: TimeMs| until <= now;
        let known = self.flaps.iter();
        let due: Vec<HostId> = known
            .filter(|(_, flaps)| flaps.until().is_some_and(is_due))
            .map(|(host, _)| *host)
            .collect();
        let mut effects = Vec::new();
        for host in due {
            let flaps = self.flaps.get_mut(&host);
            if !flaps.is_some_and(|flaps| flaps.has_stayed(now)) {
                continue;
            }
            let component = Component::Host(host);
            let condition = self.conditions.get_mut(&component);
            if condition.is_some_and(|condition| condition.lift_restriction(FLAPPING)) {
                effects.push(Effect::Held(component));
            }
        }
        effects
    }
}
