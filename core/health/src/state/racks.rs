//! Aggregation of host reports into rack faults: a rule about racks holds for a rack once enough of its hosts
//! report it.

use muster_model::health::{Action, Component, Finding, Severity};
use muster_model::ids::HostId;

use crate::component::Restriction;
use crate::guard_rails::{Group, GroupKind, Incident};
use crate::rules::{Mode, Rule};
use crate::state::{Effect, HealthState};

/// A rack.
#[derive(Clone, Copy, Debug)]
pub struct Rack<'a> {
    /// Name of the rack.
    pub name: &'a str,
    /// Hosts of the rack.
    pub hosts: &'a [HostId],
}

impl HealthState {
    /// A host reported whether a rule about racks holds. Once as many hosts of the rack report it as the
    /// rule's fatal side requires, that side's actions apply to the rack, without a strike for any host.
    pub fn aggregate_rack(
        &mut self,
        rule: &Rule,
        host: HostId,
        finding: &Finding,
        rack: Rack<'_>,
    ) -> Vec<Effect> {
        let key = (rule.id.clone(), host);
        if finding.severity >= Severity::Degraded {
            self.of_racks.insert(key);
        } else if finding.severity == Severity::Healthy {
            self.of_racks.remove(&key);
        }
        let holds_of = |host: &&HostId| self.of_racks.contains(&(rule.id.clone(), **host));
        let affected = rack.hosts.iter().filter(holds_of).copied().collect();
        let incident = Incident {
            group: Group {
                kind: GroupKind::Rack,
                name: rack.name.to_owned(),
            },
            since: finding.at,
            until: finding.at,
            hosts: affected,
        };
        let count = i64::try_from(incident.hosts.len()).unwrap_or(i64::MAX);
        let mut fatal = rule.fatal.when.iter();
        let is_fatal = fatal.any(|it| it.operator.holds(count, it.value));
        if is_fatal && rule.mode == Mode::Enforce {
            self.restrict_rack(rule, incident, rack)
        } else {
            self.lift_rack_restriction(rule, rack)
        }
    }

    /// Stops new placement in the rack if the rule requires it; operators are notified at the start.
    fn restrict_rack(&mut self, rule: &Rule, incident: Incident, rack: Rack<'_>) -> Vec<Effect> {
        let actions = &rule.fatal.actions;
        let what = rule.fatal.restriction();
        let is_known = rack.hosts.iter().any(|host| {
            let condition = self.condition(&Component::Host(*host));
            condition.is_some_and(|it| it.holds.iter().any(|held| held.rule == rule.id))
        });
        let count = incident.hosts.len();
        let evidence = format!("{}: {count} hosts of rack {}", rule.id, rack.name);
        let mut effects = Vec::new();
        if !is_known {
            let alerts = actions.contains(&Action::Alert);
            let of_rack = Component::Rack(rack.name.to_owned());
            let alert = alerts.then(|| Effect::Alert(of_rack, evidence.clone()));
            effects.extend(
                [Effect::Incident(incident.clone())]
                    .into_iter()
                    .chain(alert),
            );
        }
        for host in rack.hosts {
            let held = what.map(|what| Restriction {
                rule: rule.id.clone(),
                what,
                evidence: evidence.clone(),
                since: incident.since,
                restart: None,
            });
            let component = Component::Host(*host);
            effects.extend(held.and_then(|held| self.restrict(&component, held)));
        }
        effects
    }

    fn lift_rack_restriction(&mut self, rule: &Rule, rack: Rack<'_>) -> Vec<Effect> {
        let mut effects = Vec::new();
        for host in rack.hosts {
            let component = Component::Host(*host);
            let condition = self.conditions.get_mut(&component);
            if condition.is_some_and(|condition| condition.lift_restriction(&rule.id)) {
                effects.push(Effect::Held(component));
            }
        }
        effects
    }
}
