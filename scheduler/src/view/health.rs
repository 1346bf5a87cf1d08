//! Health of components.

use muster_engine::state::State;
use muster_health::component::{Actor, Change, Condition, Restriction};
use muster_health::rules::{RuleSet, WouldBlock};
use muster_model::health::{Component, Phase};
use muster_model::ids::HostId;
use muster_proto::v1;

/// Health state of all components, with open circuit breakers and the rules.
pub(crate) fn health_to_wire(state: &State) -> v1::GetHealthResponse {
    let conditions = state.health.conditions();
    let components =
        conditions.map(|(component, condition)| component_to_wire(state, component, condition));
    let breakers = state.health.rails().tripped();
    v1::GetHealthResponse {
        components: components.collect(),
        breakers: breakers
            .map(|(pool, since)| v1::TrippedBreaker {
                pool: pool.to_owned(),
                since_ms: since.0,
            })
            .collect(),
        ..health_rules_to_wire(state)
    }
}

/// The rules only: for workers of a cluster, which all request them at once and need no components.
pub(crate) fn health_rules_to_wire(state: &State) -> v1::GetHealthResponse {
    let rules = &state.health_rules;
    let text = if rules.text.is_empty() {
        RuleSet::SHIPPED_TEXT
    } else {
        &rules.text
    };
    v1::GetHealthResponse {
        revision: state.revision.get(),
        rules: text.to_owned(),
        rules_revision: rules.revision.get(),
        ..v1::GetHealthResponse::default()
    }
}

fn component_to_wire(
    state: &State,
    component: &Component,
    condition: &Condition,
) -> v1::ComponentHealth {
    let (host, gpu_index) = place_of(state, component);
    let phase = condition.phase;
    let waits = !phase.accepts_work() && !phase.is_admins() || phase == Phase::Probation;
    let mutes = condition
        .mutes
        .iter()
        .filter(|mute| mute.until > state.time);
    let wanted = state.health.wanted(component);
    v1::ComponentHealth {
        component: Some(component.into()),
        host,
        gpu_index,
        phase: phase.name().to_owned(),
        since_ms: condition.since.0,
        ready_at_ms: waits.then_some(condition.ready_at.0),
        strikes: condition.strikes_at(state.time),
        by_hand: waits && condition.needs_operator(state.time),
        wanted: wanted.map_or_else(String::new, |action| action.name().to_owned()),
        muted_rules: mutes.map(|mute| mute.rule.clone()).collect(),
        history: condition.history.iter().map(change_to_wire).collect(),
        restrictions: condition.holds.iter().map(held_to_wire).collect(),
    }
}

/// Health status of a component by the cluster's decision.
pub(crate) struct HealthSummary {
    pub(crate) phase: String,
    /// Empty if no rule put it there.
    pub(crate) rule: String,
    pub(crate) restrictions: Vec<v1::Restriction>,
}

impl HealthSummary {
    /// Status of a component.
    pub(crate) fn of(state: &State, component: &Component) -> Self {
        let Some(condition) = state.health.condition(component) else {
            return Self {
                phase: Phase::Healthy.name().to_owned(),
                rule: String::new(),
                restrictions: Vec::new(),
            };
        };
        let phase = condition.phase;
        let is_a_rules = phase != Phase::Healthy && !phase.is_admins();
        let mut newest_first = condition.history.iter().rev();
        let cause = newest_first.find(|change| is_a_rules && !change.rule.is_empty());
        Self {
            phase: phase.name().to_owned(),
            rule: cause.map_or_else(String::new, |change| change.rule.clone()),
            restrictions: condition.holds.iter().map(held_to_wire).collect(),
        }
    }

    /// Status of a host, including blocks of its adapters, which are listed nowhere else.
    pub(crate) fn of_host(state: &State, host: HostId) -> Self {
        let mut summary = Self::of(state, &Component::Host(host));
        for adapter in state.health.adapters_of(host) {
            let condition = state.health.condition(&adapter);
            let holds = condition.into_iter().flat_map(|condition| &condition.holds);
            summary.restrictions.extend(holds.map(held_to_wire));
        }
        summary
    }
}

fn held_to_wire(held: &Restriction) -> v1::Restriction {
    v1::Restriction {
        rule: held.rule.clone(),
        what: held.what.name().to_owned(),
        evidence: held.evidence.clone(),
        since_ms: held.since.0,
    }
}

/// Host name of a component, and its index there if it is a GPU.
pub(crate) fn place_of(state: &State, component: &Component) -> (String, Option<u32>) {
    let host = match component {
        Component::Gpu(uuid) => {
            let place = state.gpu(*uuid);
            let named = place.map(|(host, gpu)| (host.name.to_string(), Some(gpu.index)));
            return named.unwrap_or_default();
        }
        Component::Host(host) | Component::Nic { host, .. } => state.host(*host),
        Component::Rack(_) => None,
    };
    (
        host.map_or_else(String::new, |host| host.name.to_string()),
        None,
    )
}

fn change_to_wire(change: &Change) -> v1::HealthChange {
    let actor = match &change.actor {
        Actor::Rule(rule) => format!("rule {rule}"),
        Actor::Check(_) => "check".to_owned(),
        Actor::Time => "time".to_owned(),
        Actor::Admin(name) => name.clone(),
    };
    v1::HealthChange {
        event: change.event.name().to_owned(),
        actor,
        evidence: change.evidence.clone(),
        at_ms: change.at.0,
    }
}

/// A block that a set of rules would have created.
pub(crate) fn would_block_to_wire(state: &State, block: &WouldBlock) -> v1::WouldBlock {
    v1::WouldBlock {
        component: Some((&block.component).into()),
        host: place_of(state, &block.component).0,
        rule: block.rule.clone(),
        scope: block.scope.name().to_owned(),
        at_ms: block.at.0,
        findings: block.findings,
        evidence: block.evidence.clone(),
    }
}
