//! Effects of health decisions.

use std::sync::Arc;

use muster_health::component::{ChangeRejected, Condition, Restriction};
use muster_health::guard_rails::Incident;
use muster_health::state::{self, Effect, HealthState};
use muster_model::command::{Block, StopCause, StopReason};
use muster_model::event::{EventKind, HealthNote};
use muster_model::health::{Component, DeviceAction, Finding, Hold, Phase};
use muster_model::host::Host;
use muster_model::ids::HostId;

use crate::apply::Step;
use crate::apply::attempt::stopping::grace_ms;
use crate::apply::attempt::texts;
use crate::apply::host::health::{Place, action_text};
use crate::state::State;

impl Step<'_> {
    /// Passes a health event to the health state and applies the effects.
    pub(in crate::apply) fn report_to_health(
        &mut self,
        place: &Place,
        apply_event: impl FnOnce(&mut HealthState, &state::Circumstances<'_>) -> Vec<Effect>,
    ) {
        let effects = apply_event(&mut self.state.health, &place.as_health_place());
        self.apply_effects(effects);
        // A block may have become more certain: only the pool's count changes.
        self.count_in_pool(place.host);
    }

    /// Applies effects.
    pub(in crate::apply) fn apply_effects(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Changed {
                    component,
                    from,
                    to,
                } => self.component_changed(&component, from, to),
                Effect::Held(component) => self.hold_changed(&component),
                Effect::Doubted(component, evidence) => self.doubt_results(&component, &evidence),
                Effect::Kill(component) => self.kill(&component),
                Effect::Repair(component, action) => self.want(&component, action),
                Effect::CheckIdle(component) => self.want(&component, DeviceAction::Check),
                Effect::Restart { host, rule } => {
                    self.touch_desired(host);
                    let detail = format!("the services of rule {rule} are restarted");
                    self.emit_component_note(HealthNote::Repair, &Component::Host(host), detail);
                }
                Effect::Railed(component, refused) => {
                    self.emit_component_note(HealthNote::Refused, &component, refused.to_string());
                }
                Effect::Refused(component, refusal @ ChangeRejected::Muted { .. }) => {
                    self.emit_component_note(HealthNote::Refused, &component, refusal.to_string());
                }
                // Another change came first.
                Effect::Refused(..) => {}
                Effect::Alert(component, reason) => {
                    self.emit_component_note(HealthNote::Alert, &component, reason);
                }
                Effect::Incident(incident) => self.incident_began(&incident),
                Effect::IncidentOver(incident) => {
                    let detail = "it is over".to_owned();
                    self.emit_health_note(HealthNote::Incident, incident.group.to_string(), detail);
                    self.reevaluate_findings(&incident);
                }
                Effect::BreakerClosed(pool) => self.emit_health_note(
                    HealthNote::Breaker,
                    format!("pool {pool}"),
                    "the breaker closed: the wave is over".to_owned(),
                ),
            }
        }
    }

    /// Begins an incident: many hosts failed together, so their recent faults and those of their GPUs are no
    /// strikes.
    fn incident_began(&mut self, incident: &Incident) {
        let now = self.state.time;
        for id in &incident.hosts {
            let gpus = self.state.host(*id).map(|host| host.gpus.clone());
            let gpus = gpus.into_iter().flatten();
            let places = gpus.map(|gpu| Component::Gpu(gpu.uuid));
            for component in places.chain([Component::Host(*id)]) {
                self.state.health.withdraw_strike(*id, &component, now);
            }
        }
        let hosts = incident.hosts.len();
        let detail = format!("{hosts} hosts failed together: no strikes are counted");
        self.emit_health_note(HealthNote::Incident, incident.group.to_string(), detail);
    }

    /// Acts on findings of an incident's hosts that still hold when it is over.
    fn reevaluate_findings(&mut self, incident: &Incident) {
        let rules = Arc::clone(&self.state.health_rules.set);
        for finding in self.state.health.deferred_findings(&rules, incident) {
            let Some(host) = self.host_of(&finding.component) else {
                continue;
            };
            let finding = Finding {
                at: self.state.time,
                ..finding
            };
            let place = self.place_of(host, &finding.component);
            self.report_to_health(&place, |health, place| {
                health.ingest_deferred(&rules, &finding, place)
            });
        }
    }

    /// Publishes a phase change of a component to placement and in the events.
    fn component_changed(&mut self, component: &Component, from: Phase, to: Phase) {
        let Some(host) = self.host_of(component) else {
            return;
        };
        let Some(condition) = self.state.health.condition(component).cloned() else {
            return;
        };
        if to.is_admins() {
            // The block is an admin's; a pending probation ends.
            self.refresh_limits(host);
        } else {
            self.show_to_placement(host, component, &condition);
        }
        let has_other_event = to.is_admins() || from.is_admins() && to.accepts_work();
        if !has_other_event {
            let cause = condition.cause().cloned();
            self.emit(EventKind::HealthChanged {
                component: component.clone(),
                host,
                host_name: self.host_name(host),
                from,
                to,
                rule: cause
                    .as_ref()
                    .map_or_else(String::new, |it| it.rule.clone()),
                evidence: cause.map_or_else(String::new, |it| it.evidence),
            });
        }
        self.give_up_broken_claims(host);
        let waits = matches!(to, Phase::Draining | Phase::DrainingAdmin);
        if waits && self.is_idle_component(host, component) {
            let effects = self.state.health.drained(component, self.state.time);
            self.apply_effects(effects);
        }
    }

    /// Publishes a changed hold of a component to placement and in the events.
    fn hold_changed(&mut self, component: &Component) {
        let Some(host) = self.host_of(component) else {
            return;
        };
        let Some(condition) = self.state.health.condition(component).cloned() else {
            return;
        };
        if condition.phase.is_admins() {
            self.refresh_limits(host);
            return;
        }
        self.show_to_placement(host, component, &condition);
        self.give_up_broken_claims(host);
        let detail = match condition.held() {
            Some(Restriction { rule, what, .. }) => format!("rule {rule} keeps {what} off"),
            None => "no hold is left".to_owned(),
        };
        self.emit_component_note(HealthNote::Hold, component, detail);
    }

    /// Blocks a component in placement, or unblocks it, according to its condition. Adapters are not placed;
    /// apart from keeping gangs off, rules decide what their faults mean for the host.
    fn show_to_placement(&mut self, host: HostId, component: &Component, condition: &Condition) {
        let block = if condition.phase.accepts_work() {
            condition.held().and_then(block_of_hold)
        } else {
            Some(automatic_block(condition))
        };
        let (on_probation, no_gangs) = self
            .state
            .host(host)
            .map(|host| limits_of(&self.state.health, host))
            .unwrap_or_default();
        self.edit_host(host, |host| {
            host.on_probation = on_probation;
            host.no_gangs = no_gangs;
            match component {
                Component::Host(_) => host.block = block,
                Component::Gpu(uuid) => {
                    for gpu in host.gpus.iter_mut().filter(|gpu| gpu.uuid == *uuid) {
                        gpu.block.clone_from(&block);
                    }
                }
                Component::Nic { .. } | Component::Rack(_) => {}
            }
        });
        self.count_in_pool(host);
    }

    /// Updates the limits of a host after a change of its health state or of its GPUs.
    pub(in crate::apply) fn refresh_limits(&mut self, id: HostId) {
        let host = self.state.host(id);
        let known = host.map(|host| (host.on_probation, host.no_gangs));
        // The last condition of the host may have been removed.
        let limits = host.map(|host| limits_of(&self.state.health, host));
        if known != limits {
            let (on_probation, no_gangs) = limits.unwrap_or_default();
            self.edit_host(id, |host| {
                host.on_probation = on_probation;
                host.no_gangs = no_gangs;
            });
        }
        self.count_in_pool(id);
    }

    /// Counts the contribution of a host to its pool.
    pub(in crate::apply) fn count_in_pool(&mut self, id: HostId) {
        let State {
            hosts,
            health,
            health_rules,
            index,
            ..
        } = &mut *self.state;
        if let Some(host) = hosts.get(&id) {
            index.pools.count(host, health, &health_rules.set);
        }
    }

    /// Stops the work on a component without charging it to a job.
    fn kill(&mut self, component: &Component) {
        let Some(host) = self.host_of(component) else {
            return;
        };
        if let Component::Gpu(uuid) = component {
            self.stop_holder(*uuid);
            return;
        }
        let detail = texts::accusation(self.state.health.condition(component));
        let cause = StopCause::new(StopReason::HostFault { host }, detail);
        for unit in self.units_on(host) {
            let grace_ms = grace_ms(&self.job_mut(unit.job).spec, &cause.reason);
            let member = self.only_member_on(unit, host);
            self.order_stop_at(unit, member, cause.clone(), grace_ms);
        }
    }

    fn want(&mut self, component: &Component, action: DeviceAction) {
        self.state.health.want(component, action);
        if self.state.health.phase(component).is_admins() {
            // It is announced when the admin's block expires.
            return;
        }
        let wanted = self.state.health.wanted(component);
        if let Some(wanted) = wanted.filter(|_| self.state.health.wants_repair(component)) {
            let detail = format!("{} is due once nothing runs there", action_text(wanted));
            self.emit_component_note(HealthNote::Repair, component, detail);
        }
    }

    pub(super) fn emit_component_note(
        &mut self,
        note: HealthNote,
        component: &Component,
        detail: String,
    ) {
        let subject = self.place_named(component);
        self.emit_health_note(note, subject, detail);
    }

    /// Records a health event that concerns no job.
    pub(super) fn emit_health_note(&mut self, note: HealthNote, subject: String, detail: String) {
        self.emit(EventKind::HealthNoted {
            note,
            subject,
            detail,
            job: None,
        });
    }

    /// Returns the display name of a component.
    pub(super) fn place_named(&self, component: &Component) -> String {
        let host = self.host_of(component).map(|host| self.host_name(host));
        match (component, host) {
            (Component::Host(_), Some(name)) => format!("host {name}"),
            (_, Some(name)) => format!("{component} on host {name}"),
            (_, None) => component.to_string(),
        }
    }

    fn host_name(&self, host: HostId) -> String {
        let host = self.state.host(host);
        host.map_or_else(String::new, |host| host.name.to_string())
    }
}

/// Returns whether a host or one of its GPUs is on probation, and whether a rule keeps gangs off the host, a
/// GPU or an adapter of it.
pub fn limits_of(health: &HealthState, host: &Host) -> (bool, bool) {
    if !health.has_conditions() {
        return (false, false);
    }
    let gpus = host.gpus.iter().map(|gpu| Component::Gpu(gpu.uuid));
    let places: Vec<Component> = gpus.chain([Component::Host(host.id)]).collect();
    let is_on_probation = |component: &Component| health.phase(component) == Phase::Probation;
    let has_no_gangs = |component: &Component| {
        let condition = health.condition(component);
        condition.is_some_and(|condition| condition.held().is_some())
    };
    (
        places.iter().any(is_on_probation),
        places.iter().any(has_no_gangs) || health.adapters_of(host.id).iter().any(has_no_gangs),
    )
}

/// Returns the block that implements a hold on all work.
fn block_of_hold(held: &Restriction) -> Option<Block> {
    (held.what == Hold::Everything).then(|| Block {
        reason: format!("nothing new by rule {}", held.rule),
        author: format!("rule:{}", held.rule),
        evidence: held.evidence.clone(),
        since: held.since,
        expires_at: None,
        drain_deadline: None,
        planned: None,
    })
}

/// Returns a block set by a rule, as shown to placement and users.
fn automatic_block(condition: &Condition) -> Block {
    let mut newest_first = condition.history.iter().rev();
    // A component that is only suspected stays out of placement during its check.
    let fault = newest_first.find(|change| change.event.is_fault());
    let accusation = fault.or_else(|| condition.accusation());
    let rule = accusation.map_or("", |change| &change.rule);
    Block {
        reason: format!("{} by rule {rule}", condition.phase),
        author: format!("rule:{rule}"),
        evidence: accusation.map_or_else(String::new, |change| change.evidence.clone()),
        since: accusation.map_or(condition.since, |change| change.at),
        expires_at: None,
        drain_deadline: None,
        planned: None,
    }
}
