//! Health: components, findings and actions.

use std::sync::Arc;

use muster_model::desired::{CountedFindings, FindingKey, HealthDuties};
use muster_model::event::HealthNote;
use muster_model::health::{
    Attribution, Charge, Class, Component, DeviceAction, FINDINGS_PER_REPORT_MAX, Finding, Measure,
    Order, Phase, Severity, Step, WorkStep,
};
use muster_model::heartbeat::WorkDone;
use muster_model::ids::{HostId, Revision};
use muster_model::time::TimeMs;

use crate::convert::gpu_uuid;
use crate::field::{InvalidField, Twin, required};
use crate::v1;

/// Bits of the second half of a cluster's number.
const CLUSTER_BITS: u32 = 16;

/// Values transmitted by name.
macro_rules! transmit_by_name {
    ($($kind:ty),+) => {$(
        impl Twin<String> for $kind {
            fn to_wire(&self) -> String {
                self.name().to_owned()
            }

            fn from_wire(field: &str, wire: String) -> Result<Self, InvalidField> {
                Self::of(&wire).ok_or_else(|| {
                    let rule = format!("`{wire}` is not one of {}", Self::all_names());
                    InvalidField::new(field, rule)
                })
            }
        }
    )+};
}

transmit_by_name!(
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

impl Twin<Option<v1::Attribution>> for Option<Arc<Attribution>> {
    fn to_wire(&self) -> Option<v1::Attribution> {
        self.as_deref().map(Into::into)
    }

    fn from_wire(field: &str, wire: Option<v1::Attribution>) -> Result<Self, InvalidField> {
        let read =
            wire.map(|wire| Attribution::try_from(wire).map_err(|invalid| invalid.within(field)));
        Ok(read.transpose()?.map(Arc::new))
    }
}

impl From<&Attribution> for v1::Attribution {
    fn from(attribution: &Attribution) -> Self {
        Self {
            class: attribution.class.to_wire(),
            component: attribution.component.as_ref().map(Into::into),
            confidence_permille: u32::from(attribution.confidence_permille),
            evidence: attribution.evidence.clone(),
            charge: attribution.charge.to_wire(),
            measures: attribution
                .measures
                .iter()
                .map(|measure| measure.name().to_owned())
                .collect(),
            step: attribution.step.to_wire(),
            host: String::new(),
        }
    }
}

impl TryFrom<v1::Attribution> for Attribution {
    type Error = InvalidField;

    fn try_from(wire: v1::Attribution) -> Result<Self, InvalidField> {
        let component = wire.component.map(|component| {
            Component::try_from(component).map_err(|invalid| invalid.within("component"))
        });
        let measures = wire
            .measures
            .into_iter()
            .map(|word| Twin::from_wire("measures", word));
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
        heard: duties.acknowledged,
        rules_revision: duties.rules.get(),
        rules_sum: duties.rules_fingerprint,
        orders: duties.orders.iter().map(Into::into).collect(),
        counted: duties.counted.findings.iter().map(Into::into).collect(),
        recovered_at: duties.counted.recovered_at.get(),
    })
}

impl From<&FindingKey> for v1::FindingKey {
    fn from(key: &FindingKey) -> Self {
        Self {
            rule: key.rule.clone(),
            component: Some((&key.component).into()),
        }
    }
}

impl TryFrom<v1::FindingKey> for FindingKey {
    type Error = InvalidField;

    fn try_from(wire: v1::FindingKey) -> Result<Self, InvalidField> {
        let component = Component::try_from(required("component", wire.component)?);
        Ok(Self {
            rule: wire.rule,
            component: component.map_err(|invalid| invalid.within("component"))?,
        })
    }
}

/// Converts back from the wire; an older leader sends none.
pub(crate) fn duties_from_wire(
    wire: Option<v1::HealthDuties>,
) -> Result<HealthDuties, InvalidField> {
    let wire = wire.unwrap_or_default();
    let orders = wire.orders.into_iter().enumerate();
    let counted = wire.counted.into_iter().enumerate();
    Ok(HealthDuties {
        acknowledged: wire.heard,
        rules: Revision(wire.rules_revision),
        rules_fingerprint: wire.rules_sum,
        orders: orders
            .map(|(at, order)| {
                Order::try_from(order).map_err(|invalid| invalid.within_item("health.orders", at))
            })
            .collect::<Result<_, _>>()?,
        counted: CountedFindings {
            recovered_at: Revision(wire.recovered_at),
            findings: counted
                .map(|(at, key)| {
                    let key = FindingKey::try_from(key);
                    key.map_err(|invalid| invalid.within_item("health.counted", at))
                })
                .collect::<Result<_, _>>()?,
        },
    })
}
