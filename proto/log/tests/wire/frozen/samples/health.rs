//! Samples of the fourth version: health findings, decisions, repairs and configuration.

use std::sync::Arc;

use muster_engine::state::{HealthRules, State, StateParts};
use muster_health::component::{
    Actor, Change, Condition, Event, RecoveryLimits, Repairs, Restriction,
};
use muster_health::evaluate::{XidReport, Xids};
use muster_health::guard_rails::{Group, GroupKind, Incidents, PoolView, Proposal, Rails};
use muster_health::lemons::HostRecord;
use muster_health::outbox::AppliedUpTo;
use muster_health::rules::RuleSet;
use muster_health::state::{FailedEnd, Part, Program};
use muster_model::command::{BlockTarget, Command, HealthCommand, StopReason};
use muster_model::event::{EventKind, HealthNote};
use muster_model::evidence::Cause;
use muster_model::health::{
    Attribution, Charge, Class, Component, DeviceAction, Finding, Hold, Measure, Phase, Scope,
    Severity, Step, Weight, WorkStep,
};
use muster_model::ids::{AttemptEpoch, HostId, Revision, UnitIndex};
use muster_model::time::TimeMs;

use crate::frozen::samples::{JOB, LEADER, REQUEST, gpu};

const HOST: HostId = HostId(2);
const AT: TimeMs = TimeMs(4_000);

/// A rule file of one rule.
const RULES: &str = r#"format = 1

[nvlink_replay]
component = "gpu"
source = "nvml"
degraded = ["nvlink_replay_increase >= 1"]
degraded_actions = ["count"]
clears = "check"
charge = "infra"
evidence = "soft"
mode = "observe"
origin = "proposed"
figure = "a sample"

[codes]
xids = []
sxids = []
links = []
"#;

/// Commands about health, under the names of their files.
pub(crate) fn commands() -> Vec<(&'static str, Command)> {
    let report = HealthCommand::Report {
        leader: LEADER,
        host: HOST,
        incarnation: 3,
        findings: vec![xid(), over()],
    };
    let work = HealthCommand::Work {
        leader: LEADER,
        component: Component::Gpu(gpu(1)),
        step: WorkStep::Passed,
        since: AT,
        evidence: "the reset did not help".to_owned(),
    };
    let rules = HealthCommand::SetRules {
        request: REQUEST,
        author: "ada".to_owned(),
        text: RULES.into(),
        shipped: None,
    };
    let shipped = HealthCommand::ShipRules {
        leader: LEADER,
        version: 7,
        text: RULES.into(),
    };
    let reset = HealthCommand::ResetBreaker {
        request: REQUEST,
        author: "ada".to_owned(),
        pool: "H100".to_owned(),
    };
    vec![
        ("health_report", Command::Health(report)),
        ("health_work", Command::Health(work)),
        (
            "health_tick",
            Command::Health(HealthCommand::Tick { leader: LEADER }),
        ),
        (
            "health_drain_lemon",
            Command::Health(HealthCommand::DrainLemon {
                leader: LEADER,
                host: HOST,
            }),
        ),
        (
            "health_restarted",
            Command::Health(HealthCommand::Restarted {
                leader: LEADER,
                host: HOST,
                rule: "fabric_manager".to_owned(),
                since: AT,
                worked: true,
                evidence: "nvidia-fabricmanager.service was started again".to_owned(),
            }),
        ),
        ("health_rules", Command::Health(rules)),
        ("health_ship_rules", Command::Health(shipped)),
        ("health_reset_breaker", Command::Health(reset)),
        (
            "stop_attempt_host_fault",
            super::stop(StopReason::HostFault { host: HOST }),
        ),
    ]
}

/// The end of an attempt that is attributed to a GPU.
pub(crate) fn attribution() -> Attribution {
    Attribution {
        class: Class::Gpu,
        component: Some(Component::Gpu(gpu(1))),
        confidence_permille: 950,
        evidence: vec!["xid: Xid 79".to_owned(), "signal 6".to_owned()],
        charge: Charge::Infra,
        measures: vec![Measure::Requeue, Measure::Avoid],
        step: Step::Hard,
    }
}

/// One event of every kind about health.
pub(crate) fn kinds() -> Vec<EventKind> {
    vec![
        EventKind::AttemptEnded {
            job: JOB,
            unit: UnitIndex(0),
            epoch: AttemptEpoch(20),
            hosts: vec![HOST],
            detail: "signal 6 ended task 0".to_owned(),
            attribution: Some(Arc::new(attribution())),
        },
        EventKind::HealthChanged {
            component: nic(),
            host: HOST,
            host_name: "node02".to_owned(),
            from: Phase::Suspect,
            to: Phase::Blocked,
            rule: "nic-down".to_owned(),
            evidence: "state: DOWN".to_owned(),
        },
        EventKind::HealthNoted {
            note: HealthNote::Incident,
            subject: "rack r1".to_owned(),
            detail: "3 hosts went bad together".to_owned(),
            job: None,
        },
        EventKind::BlockPlanned {
            target: BlockTarget::Host("node02".to_owned()),
            author: "ada".to_owned(),
            block: Some(super::planned_block()),
        },
        EventKind::BlockPlanned {
            target: BlockTarget::Host("node02".to_owned()),
            author: "grace".to_owned(),
            block: None,
        },
        EventKind::HealthNoted {
            note: HealthNote::Doubt,
            subject: "job 5".to_owned(),
            detail: "it was on GPU-7, which computes wrongly".to_owned(),
            job: Some(JOB),
        },
    ]
}

/// A state with one record of every kind in the health state.
pub(crate) fn state() -> State {
    let mut parts = super::state::parts();
    if let Some(host) = parts.hosts.first_mut() {
        host.planned = Some(super::planned_block());
    }
    let mut health = parts.health.clone();
    for part in pieces() {
        health.restore(part);
    }
    let rules = HealthRules::read(Revision(30), &RULES.into(), Some(7));
    State::restore(StateParts {
        health,
        health_rules: rules.unwrap(),
        ..parts
    })
}

fn pieces() -> Vec<Part> {
    let faulty = Component::Gpu(gpu(1));
    let mut condition = Condition::new(AT);
    condition
        .change(blocked(), RecoveryLimits::default())
        .unwrap();
    condition.by_hand = true;
    let mut repairs = Repairs::default();
    repairs.complete(AT, DeviceAction::Reboot);
    let mut record = HostRecord::default();
    record.start(AT);
    record.fail(AT, true);
    record.code(AT, 48);
    let mut applied = AppliedUpTo::default();
    assert!(applied.is_new(3, 9));
    let mut xids = Xids::default();
    xids.record(
        &RuleSet::shipped().unwrap(),
        &XidReport {
            gpu: gpu(1),
            code: 13,
            cluster: Some((1, 2)),
            job: Some(JOB),
            user: Some("ada".to_owned()),
            at: AT,
            is_ours: false,
        },
    );
    let rack = Group {
        kind: GroupKind::Rack,
        name: "r1".to_owned(),
    };
    let mut incidents = Incidents::default();
    for host in 1..=3 {
        incidents.record_failure(AT, HostId(host), &[(rack.clone(), 4)]);
    }
    vec![
        Part::Condition(faulty.clone(), condition),
        Part::Condition(Component::Host(HOST), restrictions()),
        Part::Wanted(faulty.clone(), DeviceAction::Reset),
        Part::Repairs(faulty.clone(), repairs),
        Part::Record(HOST, record),
        Part::OfRack("power_brake".to_owned(), HOST),
        Part::Applied(HOST, applied),
        Part::Finding(xid()),
        Part::Finding(over()),
        Part::End(end()),
        Part::RanWell(end().program, vec![(gpu(2), AT)]),
        Part::Xids(xids),
        Part::Rails(rails(&faulty)),
        Part::Incidents(incidents),
    ]
}

/// A host excluded from gang placement.
fn restrictions() -> Condition {
    let mut condition = Condition::new(AT);
    assert!(condition.hold(Restriction {
        rule: "flapping".to_owned(),
        what: Hold::Gangs,
        evidence: "it fell silent 3 times".to_owned(),
        since: AT,
        restart: None,
    }));
    condition
}

fn end() -> FailedEnd {
    FailedEnd {
        at: AT,
        job: JOB,
        program: Program {
            user: "ada".to_owned(),
            image: "docker.io/library/python:3.12".to_owned(),
        },
        hosts: vec![HOST],
        gpus: vec![gpu(1)],
        cause: Some(Cause::Kernel),
    }
}

fn rails(component: &Component) -> Rails {
    let mut rails = Rails::default();
    let proposal = Proposal {
        component,
        host: HOST,
        scope: Scope::Gpu,
        gpus: 1,
        weight: Weight::Soft,
        pool: "H100",
        job: Some(JOB),
        tenant: Some("ada"),
        users: 2,
        at: AT,
    };
    let view = PoolView {
        gpus: 80,
        hosts: 10,
        hosts_in_service: 10,
        ..PoolView::default()
    };
    rails.admit(&proposal, &view);
    rails
}

fn blocked() -> Change {
    Change {
        event: Event::Block,
        actor: Actor::Rule("xid".to_owned()),
        rule: "xid".to_owned(),
        evidence: "NVRM: Xid 48".to_owned(),
        at: AT,
        is_strike: true,
        expires_at: None,
        by_hand: false,
    }
}

fn nic() -> Component {
    Component::Nic {
        host: HOST,
        name: "mlx5_0/1".to_owned(),
    }
}

fn xid() -> Finding {
    Finding {
        sequence: 8,
        rule: "xid".to_owned(),
        component: Component::Gpu(gpu(1)),
        severity: Severity::Fatal,
        metric: "xid".to_owned(),
        measured: -1,
        code: Some(13),
        cluster: Some((3, 7)),
        evidence: "NVRM: Xid (PCI:0000:1b:00): 13".to_owned(),
        at: AT,
    }
}

fn over() -> Finding {
    Finding {
        sequence: 9,
        rule: "nic-down".to_owned(),
        component: nic(),
        severity: Severity::Healthy,
        metric: String::new(),
        measured: 0,
        code: None,
        cluster: None,
        evidence: String::new(),
        at: AT,
    }
}
