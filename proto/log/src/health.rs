//! Commands about health.

use muster_model::command::HealthCommand;
use muster_proto::field::{required, twin_variants};
use v1::health::Kind;

use crate::error::Field;
use crate::v1::{self, health};

twin_variants! {
    kind_to_wire, kind_from_wire: HealthCommand <=> Kind in health {
        Report { leader: leader, host: host, incarnation: incarnation, findings: findings },
        Work { leader: leader, component: component, step: step, since: since_ms, evidence: evidence },
        Tick { leader: leader },
        DrainLemon { leader: leader, host: host },
        Restarted {
            leader: leader, host: host, rule: rule, since: since_ms, worked: worked,
            evidence: evidence
        },
        SetRules { request: request, author: author, text: text, shipped: shipped_version },
        ShipRules { leader: leader, version: version, text: text },
        ResetBreaker { request: request, author: author, pool: pool },
    }
}

pub(super) fn to_wire(command: &HealthCommand) -> v1::Health {
    v1::Health {
        kind: Some(kind_to_wire(command)),
    }
}

pub(super) fn from_wire(wire: v1::Health) -> Field<HealthCommand> {
    kind_from_wire(required("health.kind", wire.kind)?)
}
