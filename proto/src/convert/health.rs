//! Health: components, findings and actions.

use std::sync::Arc;

use muster_engine::state::State;
use muster_health::component::{Actor, Change, Condition, Held};
use muster_health::rules::{RuleSet, WouldBlock};
use muster_model::beat::WorkDone;
use muster_model::desired::HealthDuties;
use muster_model::event::HealthNote;
use muster_model::health::{
    Blame, Charge, Class, Component, DeviceAction, FINDINGS_PER_REPORT_MAX, Finding, Measure,
    Order, Phase, Severity, Step, WorkStep,
};
use muster_model::ids::{HostId, Revision};
use muster_model::time::TimeMs;

use crate::convert::twin::Twin;
use crate::convert::{InvalidField, gpu_uuid, required};
use crate::v1;

/// Bits of the second half of a cluster's number.
const CLUSTER_BITS: u32 = 16;

/// Values transmitted as words.
macro_rules! words {
    ($($kind:ty),+) => {$(
        impl Twin<String> for $kind {
            fn to_wire(&self) -> String {
                self.word().to_owned()
            }

            fn from_wire(field: &str, wire: String) -> Result<Self, InvalidField> {
                Self::of(&wire).ok_or_else(|| {
                    let rule = format!("`{wire}` is not one of {}", Self::all_words());
                    InvalidField::new(field, rule)
                })
            }
        }
    )+};
}

words!(
    Severity,
    Phase,
    DeviceAction,
    HealthNote,
    WorkStep,
    Class,
    Charge,
    Measure,
    Step
);

impl Twin<Option<v1::Blame>> for Option<Arc<Blame>> {
    fn to_wire(&self) -> Option<v1::Blame> {
        self.as_deref().map(Into::into)
    }

    fn from_wire(field: &str, wire: Option<v1::Blame>) -> Result<Self, InvalidField> {
        let read = wire.map(|wire| Blame::try_from(wire).map_err(|invalid| invalid.within(field)));
        Ok(read.transpose()?.map(Arc::new))
    }
}

impl From<&Blame> for v1::Blame {
    fn from(blame: &Blame) -> Self {
        Self {
            class: blame.class.to_wire(),
            component: blame.component.as_ref().map(Into::into),
            confidence_permille: u32::from(blame.confidence_permille),
            evidence: blame.evidence.clone(),
            charge: blame.charge.to_wire(),
            measures: blame.measures.iter().map(Twin::to_wire).collect(),
            step: blame.step.to_wire(),
            host: String::new(),
        }
    }
}

impl TryFrom<v1::Blame> for Blame {
    type Error = InvalidField;

    fn try_from(wire: v1::Blame) -> Result<Self, InvalidField> {
        let component = wire.component.map(|component| {
            Component::try_from(component).map_err(|invalid| invalid.within("component"))
        });
        let measures = { wire.measures.into_iter() }.map(|word| Twin::from_wire("measures", word));
        Ok(Self {
            class: Twin::from_wire("class", wire.class)?,
            component: component.transpose()?,
            confidence_permille: Twin::from_wire("confidence_permille", wire.confidence_permille)?,
            evidence: wire.evidence,
            charge: Twin::from_wire("charge", wire.charge)?,
            measures: measures.collect::<Result<_, _>>()?,
            step: Twin::from_wire("step", wire.step)?,
        })
    }
}

impl Twin<Option<v1::Component>> for Component {
    fn to_wire(&self) -> Option<v1::Component> {
        Some(self.into())
    }

    fn from_wire(field: &str, wire: Option<v1::Component>) -> Result<Self, InvalidField> {
        Self::try_from(required(field, wire)?).map_err(|invalid| invalid.within(field))
    }
}

impl Twin<Vec<v1::Finding>> for Vec<Finding> {
    fn to_wire(&self) -> Vec<v1::Finding> {
        self.iter().map(Into::into).collect()
    }

    fn from_wire(_: &str, wire: Vec<v1::Finding>) -> Result<Self, InvalidField> {
        findings(wire)
    }
}

impl From<&Component> for v1::Component {
    fn from(component: &Component) -> Self {
        use v1::component::{Kind, Nic};
        let kind = match component {
            Component::Gpu(uuid) => Kind::Gpu(uuid.to_string()),
            Component::Nic { host, name } => Kind::Nic(Nic {
                host_id: host.get(),
                name: name.clone(),
            }),
            Component::Host(host) => Kind::HostId(host.get()),
            Component::Rack(name) => Kind::Rack(name.clone()),
        };
        Self { kind: Some(kind) }
    }
}

impl TryFrom<v1::Component> for Component {
    type Error = InvalidField;

    fn try_from(wire: v1::Component) -> Result<Self, InvalidField> {
        use v1::component::Kind;
        Ok(match required("kind", wire.kind)? {
            Kind::Gpu(uuid) => Self::Gpu(gpu_uuid("gpu", &uuid)?),
            Kind::Nic(nic) => Self::Nic {
                host: HostId(nic.host_id),
                name: nic.name,
            },
            Kind::HostId(host) => Self::Host(HostId(host)),
            Kind::Rack(name) => Self::Rack(name),
        })
    }
}

impl From<&Finding> for v1::Finding {
    fn from(finding: &Finding) -> Self {
        let packed =
            |(first, second): (u16, u16)| (u32::from(first) << CLUSTER_BITS) | u32::from(second);
        Self {
            sequence: finding.sequence,
            rule: finding.rule.clone(),
            component: finding.component.to_wire(),
            severity: finding.severity.to_wire(),
            metric: finding.metric.clone(),
            measured: finding.measured,
            code: finding.code,
            cluster: finding.cluster.map(packed),
            evidence: finding.evidence.clone(),
            at_ms: finding.at.0,
        }
    }
}

impl TryFrom<v1::Finding> for Finding {
    type Error = InvalidField;

    fn try_from(wire: v1::Finding) -> Result<Self, InvalidField> {
        let half = |bits: u32| u16::try_from(bits & u32::from(u16::MAX)).unwrap_or(u16::MAX);
        let unpacked = |packed: u32| (half(packed >> CLUSTER_BITS), half(packed));
        Ok(Self {
            sequence: wire.sequence,
            rule: wire.rule,
            component: Twin::from_wire("component", wire.component)?,
            severity: Twin::from_wire("severity", wire.severity)?,
            metric: wire.metric,
            measured: wire.measured,
            code: wire.code,
            cluster: wire.cluster.map(unpacked),
            evidence: wire.evidence,
            at: TimeMs(wire.at_ms),
        })
    }
}

/// Findings of one report.
pub(crate) fn findings(wire: Vec<v1::Finding>) -> Result<Vec<Finding>, InvalidField> {
    if wire.len() > FINDINGS_PER_REPORT_MAX {
        let (count, limit) = (wire.len(), FINDINGS_PER_REPORT_MAX);
        let rule =
            format!("{count} entries are over the limit of {limit} (FINDINGS_PER_REPORT_MAX)");
        return Err(InvalidField::new("findings", rule));
    }
    let numbered = wire.into_iter().enumerate();
    numbered
        .map(|(at, finding)| {
            Finding::try_from(finding).map_err(|invalid| invalid.within_item("findings", at))
        })
        .collect()
}

impl From<&Order> for v1::HealthOrder {
    fn from(order: &Order) -> Self {
        Self {
            component: order.component.to_wire(),
            action: order.action.to_wire(),
            since_ms: order.since.0,
            rule: order.rule.clone(),
            is_thorough: order.is_thorough,
        }
    }
}

impl TryFrom<v1::HealthOrder> for Order {
    type Error = InvalidField;

    fn try_from(wire: v1::HealthOrder) -> Result<Self, InvalidField> {
        Ok(Self {
            component: Twin::from_wire("component", wire.component)?,
            action: Twin::from_wire("action", wire.action)?,
            since: TimeMs(wire.since_ms),
            rule: wire.rule,
            is_thorough: wire.is_thorough,
        })
    }
}

impl From<&WorkDone> for v1::HealthWorkDone {
    fn from(done: &WorkDone) -> Self {
        Self {
            order: Some((&done.order).into()),
            passed: done.passed,
            evidence: done.evidence.clone(),
        }
    }
}

impl TryFrom<v1::HealthWorkDone> for WorkDone {
    type Error = InvalidField;

    fn try_from(wire: v1::HealthWorkDone) -> Result<Self, InvalidField> {
        let order = Order::try_from(required("order", wire.order)?);
        Ok(Self {
            order: order.map_err(|invalid| invalid.within("order"))?,
            passed: wire.passed,
            evidence: wire.evidence,
        })
    }
}

/// Health duties of a worker; none if there are none.
pub(crate) fn duties_to_wire(duties: &HealthDuties) -> Option<v1::HealthDuties> {
    (*duties != HealthDuties::default()).then(|| v1::HealthDuties {
        heard: duties.heard,
        rules_revision: duties.rules.get(),
        rules_sum: duties.rules_sum,
        orders: duties.orders.iter().map(Into::into).collect(),
    })
}

/// Converts back from the wire; an older leader sends none.
pub(crate) fn duties_from_wire(
    wire: Option<v1::HealthDuties>,
) -> Result<HealthDuties, InvalidField> {
    let wire = wire.unwrap_or_default();
    let orders = wire.orders.into_iter().enumerate();
    Ok(HealthDuties {
        heard: wire.heard,
        rules: Revision(wire.rules_revision),
        rules_sum: wire.rules_sum,
        orders: orders
            .map(|(at, order)| {
                Order::try_from(order).map_err(|invalid| invalid.within_item("health.orders", at))
            })
            .collect::<Result<_, _>>()?,
    })
}

/// Health state of all components, with open circuit breakers and the rules.
#[must_use]
pub fn health_to_wire(state: &State) -> v1::GetHealthResponse {
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
#[must_use]
pub fn health_rules_to_wire(state: &State) -> v1::GetHealthResponse {
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
    let mutes = condition.mutes.iter();
    let mutes = mutes.filter(|mute| mute.until > state.time);
    let wanted = state.health.wanted(component);
    v1::ComponentHealth {
        component: Some(component.into()),
        host,
        gpu_index,
        phase: phase.to_wire(),
        since_ms: condition.since.0,
        ready_at_ms: waits.then_some(condition.ready_at.0),
        strikes: condition.strikes_at(state.time),
        by_hand: waits && condition.is_for_a_person(state.time),
        wanted: wanted.map_or_else(String::new, |action| action.to_wire()),
        muted_rules: mutes.map(|mute| mute.rule.clone()).collect(),
        history: condition.history.iter().map(Into::into).collect(),
        kept_off: condition.holds.iter().map(Into::into).collect(),
    }
}

/// Health status of a component by the cluster's decision.
pub(super) struct Standing {
    pub(super) phase: String,
    /// Empty if no rule put it there.
    pub(super) rule: String,
    pub(super) kept_off: Vec<v1::KeptOff>,
}

impl Standing {
    /// Status of a component.
    pub(super) fn of(state: &State, component: &Component) -> Self {
        let Some(condition) = state.health.condition(component) else {
            return Self {
                phase: Phase::Healthy.to_wire(),
                rule: String::new(),
                kept_off: Vec::new(),
            };
        };
        let phase = condition.phase;
        let is_a_rules = phase != Phase::Healthy && !phase.is_admins();
        let mut newest_first = condition.history.iter().rev();
        let cause = newest_first.find(|change| is_a_rules && !change.rule.is_empty());
        Self {
            phase: phase.to_wire(),
            rule: cause.map_or_else(String::new, |change| change.rule.clone()),
            kept_off: condition.holds.iter().map(Into::into).collect(),
        }
    }

    /// Status of a host, including blocks of its adapters, which are listed nowhere else.
    pub(super) fn of_host(state: &State, host: HostId) -> Self {
        let mut standing = Self::of(state, &Component::Host(host));
        for adapter in state.health.adapters_of(host) {
            let condition = state.health.condition(&adapter);
            let holds = condition.into_iter().flat_map(|condition| &condition.holds);
            standing.kept_off.extend(holds.map(v1::KeptOff::from));
        }
        standing
    }
}

impl From<&Held> for v1::KeptOff {
    fn from(held: &Held) -> Self {
        Self {
            rule: held.rule.clone(),
            what: held.what.word().to_owned(),
            evidence: held.evidence.clone(),
            since_ms: held.since.0,
        }
    }
}

/// Host name of a component, and its index there if it is a GPU.
pub(super) fn place_of(state: &State, component: &Component) -> (String, Option<u32>) {
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

impl From<&Change> for v1::HealthChange {
    fn from(change: &Change) -> Self {
        let actor = match &change.actor {
            Actor::Rule(rule) => format!("rule {rule}"),
            Actor::Check(_) => "check".to_owned(),
            Actor::Time => "time".to_owned(),
            Actor::Admin(name) => name.clone(),
        };
        Self {
            event: change.event.word().to_owned(),
            actor,
            evidence: change.evidence.clone(),
            at_ms: change.at.0,
        }
    }
}

/// A block that a set of rules would have created.
#[must_use]
pub fn would_block_to_wire(state: &State, block: &WouldBlock) -> v1::WouldBlock {
    v1::WouldBlock {
        component: Some((&block.component).into()),
        host: place_of(state, &block.component).0,
        rule: block.rule.clone(),
        scope: block.scope.word().to_owned(),
        at_ms: block.at.0,
        findings: block.findings,
        evidence: block.evidence.clone(),
    }
}
