//! Arbitrary health data.

use muster_model::command::HealthCommand;
use muster_model::desired::{CountedFindings, FindingKey, HealthDuties};
use muster_model::health::{Component, DeviceAction, Finding, Order, Severity, WorkStep};
use muster_model::heartbeat::WorkDone;
use muster_model::ids::Revision;
use muster_model::time::TimeMs;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use crate::round_trip::strategies::{gpu, host, leader, request, text};

pub(crate) fn component() -> impl Strategy<Value = Component> {
    prop_oneof![
        gpu().prop_map(Component::Gpu),
        host().prop_map(Component::Host),
        (host(), text()).prop_map(|(host, name)| Component::Nic { host, name }),
        text().prop_map(Component::Rack),
    ]
}

pub(crate) fn finding() -> impl Strategy<Value = Finding> {
    let numbers = (any::<u64>(), any::<i64>(), any::<u64>());
    let codes = (option::of(any::<u32>()), option::of(any::<(u16, u16)>()));
    let texts = (text(), text(), text());
    (numbers, codes, texts, component(), select(Severity::ALL)).prop_map(
        |(numbers, codes, texts, component, severity)| Finding {
            sequence: numbers.0,
            rule: texts.0,
            component,
            severity,
            metric: texts.1,
            measured: numbers.1,
            code: codes.0,
            cluster: codes.1,
            evidence: texts.2,
            at: TimeMs(numbers.2),
        },
    )
}

fn order() -> impl Strategy<Value = Order> {
    let parts = (
        component(),
        select(DeviceAction::ALL),
        any::<u64>(),
        text(),
        any::<bool>(),
    );
    parts.prop_map(|(component, action, since, rule, is_thorough)| Order {
        component,
        action,
        since: TimeMs(since),
        rule,
        is_thorough,
    })
}

pub(crate) fn work_done() -> impl Strategy<Value = WorkDone> {
    (order(), any::<bool>(), text()).prop_map(|(order, passed, evidence)| WorkDone {
        order,
        passed,
        evidence,
    })
}

pub(crate) fn duties() -> impl Strategy<Value = HealthDuties> {
    let rules = (any::<u64>(), any::<u64>());
    let key = (text(), component()).prop_map(|(rule, component)| FindingKey { rule, component });
    let counted =
        (any::<u64>(), vec(key, 0..3)).prop_map(|(recovered_at, findings)| CountedFindings {
            recovered_at: Revision(recovered_at),
            findings,
        });
    (any::<u64>(), rules, vec(order(), 0..3), counted).prop_map(
        |(acknowledged, (rules, rules_fingerprint), orders, counted)| HealthDuties {
            acknowledged,
            rules: Revision(rules),
            rules_fingerprint,
            orders,
            counted,
        },
    )
}

/// Any command about health.
pub(crate) fn command() -> impl Strategy<Value = HealthCommand> {
    let report = (leader(), host(), any::<u64>(), vec(finding(), 0..3)).prop_map(
        |(leader, host, incarnation, findings)| HealthCommand::Report {
            leader,
            host,
            incarnation,
            findings,
        },
    );
    let work = (
        leader(),
        component(),
        select(WorkStep::ALL),
        any::<u64>(),
        text(),
    )
        .prop_map(
            |(leader, component, step, since, evidence)| HealthCommand::Work {
                leader,
                component,
                step,
                since: TimeMs(since),
                evidence,
            },
        );
    let rules = (request(), text(), text(), option::of(any::<u32>())).prop_map(
        |(request, author, text, shipped)| HealthCommand::SetRules {
            request,
            author,
            text: text.into(),
            shipped,
        },
    );
    let ship = (leader(), any::<u32>(), text()).prop_map(|(leader, version, text)| {
        HealthCommand::ShipRules {
            leader,
            version,
            text: text.into(),
        }
    });
    let reset = (request(), text(), text()).prop_map(|(request, author, pool)| {
        HealthCommand::ResetBreaker {
            request,
            author,
            pool,
        }
    });
    let tick = leader().prop_map(|leader| HealthCommand::Tick { leader });
    let lemon =
        (leader(), host()).prop_map(|(leader, host)| HealthCommand::DrainLemon { leader, host });
    let restarted = (
        leader(),
        host(),
        (text(), text()),
        any::<u64>(),
        any::<bool>(),
    )
        .prop_map(
            |(leader, host, (rule, evidence), since, worked)| HealthCommand::Restarted {
                leader,
                host,
                rule,
                since: TimeMs(since),
                worked,
                evidence,
            },
        );
    prop_oneof![report, work, rules, ship, reset, tick, lemon, restarted]
}
