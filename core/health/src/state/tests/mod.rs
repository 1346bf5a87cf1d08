//! Faults of the catalogue, from the finding to its effects.

use std::collections::BTreeMap;

use muster_model::health::{Attribution, Charge, Class, Measure, Severity, Step};
use muster_model::ids::GpuUuid;
use muster_model::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS};

use super::*;
use crate::attribution::{AttributionOutcome, Suspicion};
use crate::component::Actor;
use crate::guard_rails::GroupKind;
use crate::rules::{Mode, RuleSet};

mod counted;
mod figures;

/// A cluster of 100 hosts with eight GPUs, in racks of ten.
struct Site {
    rules: RuleSet,
    health: HealthState,
    sequences: BTreeMap<HostId, u64>,
    job: Option<(u64, &'static str)>,
    view: PoolView,
    /// Whether nothing runs there.
    is_idle: bool,
}

fn gpu(host: u32, index: u32) -> Component {
    Component::Gpu(GpuUuid(u128::from(host * 8 + index)))
}

fn host(host: u32) -> Component {
    Component::Host(HostId(host))
}

impl Site {
    fn new() -> Self {
        let rules = RuleSet::shipped().expect("the shipped rules parse");
        let mut health = HealthState::default();
        health.adopt_rules(&rules);
        Self {
            rules,
            health,
            sequences: BTreeMap::new(),
            job: None,
            view: PoolView {
                gpus: 800,
                hosts: 100,
                hosts_in_service: 100,
                ..PoolView::default()
            },
            is_idle: true,
        }
    }

    fn with_place<T>(
        &mut self,
        of: u32,
        act: impl FnOnce(&mut HealthState, &RuleSet, &Circumstances<'_>) -> T,
    ) -> T {
        let rack = Group {
            kind: GroupKind::Rack,
            name: format!("r{}", of / 10),
        };
        let cluster = Group {
            kind: GroupKind::Cluster,
            name: String::new(),
        };
        let groups = [(rack, 10), (cluster, 100)];
        let place = Circumstances {
            host: HostId(of),
            gpus: 8,
            pool: "all",
            view: self.view,
            groups: &groups,
            job: self.job.map(|(job, _)| JobId(job)),
            user: self.job.map(|(_, user)| user),
            is_ours: false,
            is_idle: self.is_idle,
            is_host_idle: self.is_idle,
        };
        act(&mut self.health, &self.rules, &place)
    }

    fn ingest(&mut self, of: u32, mut finding: Finding) -> Vec<Effect> {
        let sequence = self.sequences.entry(HostId(of)).or_default();
        *sequence += 1;
        finding.sequence = *sequence;
        self.with_place(of, |health, rules, place| {
            health.ingest(rules, 1, &finding, place)
        })
    }

    /// Applies a reading of a rule; returns the effects as text.
    fn reading(&mut self, rule: &str, component: Component, severity: Severity, at: u64) -> String {
        let of = match &component {
            Component::Gpu(gpu) => gpu.0 as u32 / 8,
            Component::Host(host) | Component::Nic { host, .. } => host.0,
            Component::Rack(_) => 0,
        };
        let finding = finding(rule, component, severity, at);
        describe(&self.ingest(of, finding))
    }

    /// Applies an XID of a GPU with the severity of its code.
    fn xid(&mut self, code: u32, component: Component, at: u64) -> String {
        let policy = self.rules.codes.xid(code).expect("it is known").severity;
        let severity = Severity::of(policy.name()).unwrap_or(Severity::Fatal);
        let mut finding = finding("xid", component.clone(), severity, at);
        finding.code = Some(code);
        let Component::Gpu(gpu) = component else {
            panic!("XIDs are of GPUs");
        };
        describe(&self.ingest(gpu.0 as u32 / 8, finding))
    }
}

fn finding(rule: &str, component: Component, severity: Severity, at: u64) -> Finding {
    Finding {
        sequence: 0,
        rule: rule.to_owned(),
        component,
        severity,
        metric: String::new(),
        measured: 1,
        code: None,
        cluster: None,
        evidence: format!("{rule} seen"),
        at: TimeMs(at),
    }
}

/// Short name of a component: `g` with host and index, or `h` with host.
fn name(component: &Component) -> String {
    match component {
        Component::Gpu(gpu) => format!("g{}.{}", gpu.0 / 8, gpu.0 % 8),
        Component::Host(host) => format!("h{host}"),
        other => other.to_string(),
    }
}

fn describe(effects: &[Effect]) -> String {
    let one = |effect: &Effect| match effect {
        Effect::Held(component) => format!("held {}", name(component)),
        Effect::Restart { host, rule } => format!("restart {rule} on h{host}"),
        Effect::Doubted(component, _) => format!("doubt {}", name(component)),
        Effect::Changed { component, to, .. } => format!("{} {to}", name(component)),
        Effect::Kill(component) => format!("kill {}", name(component)),
        Effect::Repair(component, action) => format!("{action} {}", name(component)),
        Effect::CheckIdle(component) => format!("check {}", name(component)),
        Effect::Railed(component, refused) => format!("{} on {}", refused.rail, name(component)),
        Effect::Refused(component, refusal) => format!("{}: {refusal}", name(component)),
        Effect::Incident(incident) => format!(
            "incident of {} {}",
            incident.hosts.len(),
            incident.group.kind
        ),
        Effect::IncidentOver(incident) => format!("over of {}", incident.hosts.len()),
        Effect::BreakerClosed(pool) => format!("closed {pool}"),
        Effect::Alert(component, _) => format!("alert {}", name(component)),
    };
    effects.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn admin(event: Event, reason: &str, at: u64, expires_at: Option<u64>) -> Change {
    Change {
        event,
        actor: Actor::Admin("ann".to_owned()),
        rule: String::new(),
        evidence: reason.to_owned(),
        at: TimeMs(at),
        is_strike: false,
        expires_at: expires_at.map(TimeMs),
        by_hand: false,
    }
}

/// Single findings and their immediate effects.
#[test]
fn a_fault_blocks_only_the_faulty_component() {
    use Severity::{Degraded, Fatal};
    for (name, play, expected) in [
        (
            "1: XID 79",
            Site::new().xid(79, gpu(1, 0), 0),
            "h1 blocked(auto), kill h1, reboot h1",
        ),
        (
            "3: XID 48",
            Site::new().xid(48, gpu(1, 0), 0),
            "g1.0 blocked(auto), kill g1.0, reset g1.0",
        ),
        (
            "3: XID 63",
            Site::new().xid(63, gpu(1, 0), 0),
            "g1.0 draining, reset_idle g1.0",
        ),
        (
            "4: XID 94",
            Site::new().xid(94, gpu(1, 0), 0),
            "g1.0 draining, reset_idle g1.0",
        ),
        ("5: XID 31", Site::new().xid(31, gpu(1, 0), 0), ""),
        (
            "XID 74 by registers of NVLink 5",
            Site::new().xid(149, gpu(1, 0), 0),
            "g1.0 blocked(auto), kill g1.0, reset g1.0",
        ),
        (
            "12: uncorrected ECC",
            Site::new().reading("ecc_unc_volatile", gpu(1, 0), Fatal, 0),
            "g1.0 blocked(auto), kill g1.0, reset g1.0",
        ),
        (
            "13: corrected ECC",
            Site::new().reading("ecc_cor_dram", gpu(1, 0), Degraded, 0),
            "g1.0 draining, reset_idle g1.0",
        ),
        (
            "14: remap failure",
            Site::new().reading("remap_failure", gpu(1, 0), Fatal, 0),
            "g1.0 rma, alert g1.0",
        ),
        (
            "15: GPU lost",
            Site::new().reading("gpu_lost", gpu(1, 2), Fatal, 0),
            "h1 blocked(auto), kill h1, reboot h1",
        ),
        (
            "16: hung NVML",
            Site::new().reading("nvml_latency", host(1), Fatal, 0),
            "h1 blocked(auto), reboot h1",
        ),
        (
            "18: recovery action 4",
            Site::new().reading("gpu_recovery_action", gpu(1, 0), Degraded, 0),
            "g1.0 draining, reset_idle g1.0",
        ),
        (
            "18: recovery action 3",
            Site::new().reading("gpu_recovery_peers", gpu(1, 0), Degraded, 0),
            "g1.0 suspect, held g1.0",
        ),
        (
            "19: a slow clock",
            Site::new().reading("clock_low", gpu(1, 0), Degraded, 0),
            "g1.0 suspect, check g1.0",
        ),
        (
            "20: throttled",
            Site::new().reading("hw_slowdown", gpu(1, 0), Degraded, 0),
            "g1.0 suspect, held g1.0",
        ),
        (
            "21: power brake of one host",
            Site::new().reading("power_brake", host(1), Degraded, 0),
            "h1 suspect, alert h1",
        ),
        (
            "22: NVLink down",
            Site::new().reading("nvlink_down", gpu(1, 0), Fatal, 0),
            "g1.0 blocked(auto), kill g1.0, reset g1.0",
        ),
        (
            "31: read-only",
            Site::new().reading("fs_readonly", host(1), Fatal, 0),
            "h1 blocked(auto), reboot h1",
        ),
        (
            "55: SXid",
            Site::new().reading("sxid_fatal", host(1), Fatal, 0),
            "h1 blocked(auto), kill h1, reboot h1",
        ),
        (
            "56: fabric manager",
            Site::new().reading("fabric_manager", host(1), Fatal, 0),
            "h1 suspect, held h1, restart fabric_manager on h1",
        ),
        (
            "a container engine",
            Site::new().reading("runtime", host(1), Fatal, 0),
            "h1 suspect, held h1, restart runtime on h1",
        ),
        (
            "57: driver and library",
            Site::new().reading("driver_lib_mismatch", host(1), Degraded, 0),
            "h1 draining, reboot h1",
        ),
        (
            "58: adapter down",
            Site::new().reading(
                "ib_state",
                Component::Nic {
                    host: HostId(1),
                    name: "mlx5_0/1".to_owned(),
                },
                Fatal,
                0,
            ),
            "h1 blocked(auto), alert h1",
        ),
        (
            "59: clock",
            Site::new().reading("clock_skew", host(1), Fatal, 0),
            "h1 suspect, held h1",
        ),
        (
            "observed only",
            Site::new().reading("pcie_fatal", gpu(1, 0), Fatal, 0),
            "",
        ),
        (
            "no rule",
            Site::new().reading("unheard_of", gpu(1, 0), Fatal, 0),
            "alert g1.0",
        ),
    ] {
        assert_eq!(play, expected, "{name}");
    }
}

/// A service is restarted once per finding, on few hosts at a time, and running tasks continue.
#[test]
fn services_are_restarted_on_few_hosts_at_a_time() {
    let mut site = Site::new();
    let fails = |site: &mut Site, of| {
        site.reading("fabric_manager", host(of), Severity::Fatal, u64::from(of))
    };
    for of in 1..=8 {
        let output = fails(&mut site, of);
        assert!(
            output.ends_with(&format!("restart fabric_manager on h{of}")),
            "{output}"
        );
    }
    assert_eq!(fails(&mut site, 9), "h9 suspect, held h9");
    let orders = |site: &Site, of: u32| {
        let orders = site.health.orders(HostId(of), std::iter::empty());
        orders.collect::<Vec<_>>()
    };
    let order = orders(&site, 1).remove(0);
    assert_eq!(
        (order.action, &*order.rule, order.since),
        (DeviceAction::RestartService, "fabric_manager", TimeMs(1))
    );
    assert!(orders(&site, 9).is_empty());
    let mut done = |of: u32, since| {
        let effects = site
            .health
            .restarted(HostId(of), "fabric_manager", since, TimeMs(60));
        effects.map(|effects| describe(&effects))
    };
    assert_eq!(done(1, TimeMs(2)), None, "of another order");
    assert_eq!(
        done(1, TimeMs(1)).as_deref(),
        Some("restart fabric_manager on h9")
    );
    assert_eq!(done(1, TimeMs(1)), None, "already reported");
    // It did not help: it is not repeated.
    assert_eq!(fails(&mut site, 1), "");
    assert!(orders(&site, 1).is_empty());
    // It helped, and the next time it is tried again.
    let well = site.reading("fabric_manager", host(2), Severity::Healthy, 70);
    assert_eq!(well, "h2 healthy, held h2");
    assert!(orders(&site, 2).is_empty());
    let again = site.reading("fabric_manager", host(2), Severity::Fatal, 80);
    assert_eq!(again, "h2 suspect, held h2, restart fabric_manager on h2");
    // Workers that do not respond do not hold up others forever.
    for of in 10..=20 {
        fails(&mut site, of);
    }
    let later = 11 * MINUTE_MS;
    let output = site.reading("fabric_manager", host(30), Severity::Fatal, later);
    assert_eq!(output.matches("restart").count(), 8, "{output}");
    // Even if nothing else happens: time alone advances the waiting ones.
    let due = site.health.due(TimeMs(later));
    let given_up = TimeMs(later + 10 * MINUTE_MS);
    assert_eq!((due.ticks, due.next), (false, Some(given_up)));
    assert!(site.health.due(given_up).ticks);
    let output = describe(&site.health.tick(given_up));
    assert_eq!(output.matches("restart").count(), 4, "{output}");
    assert!(!site.health.due(given_up).ticks);
}

/// Services of a host that an admin holds are not restarted meanwhile, but once the admin's block has
/// expired.
#[test]
fn services_are_restarted_once_an_admins_block_has_expired() {
    let mut site = Site::new();
    let block = admin(Event::AdminBlock, "cabling", 0, Some(HOUR_MS));
    site.health.admin(&host(1), block);
    let output = site.reading("fabric_manager", host(1), Severity::Fatal, 1);
    assert_eq!(output, "held h1");
    assert!(!site.health.due(TimeMs(2)).ticks);
    site.health.expired(&host(1), TimeMs(HOUR_MS));
    assert!(site.health.due(TimeMs(HOUR_MS)).ticks);
    let output = describe(&site.health.tick(TimeMs(HOUR_MS)));
    assert_eq!(output, "restart fabric_manager on h1");
}

/// A component that was repaired as often as the rule allows needs an operator.
#[test]
fn after_five_repairs_in_a_week_only_an_operator_unblocks() {
    let mut site = Site::new();
    for at in 0..5 {
        let now = TimeMs(at * HOUR_MS);
        site.health.repaired(&gpu(1, 0), DeviceAction::Reset, now);
    }
    let output = site.reading("ecc_unc_volatile", gpu(1, 0), Severity::Fatal, DAY_MS);
    assert_eq!(output, "g1.0 blocked(auto), kill g1.0, alert g1.0");
    let condition = site.health.condition(&gpu(1, 0)).expect("it is known");
    assert!(condition.by_hand);
}

/// A wrong clock costs no strike; if most are wrong, it is the leader's own, and no host is restricted.
#[test]
fn clock_skew_of_most_hosts_at_once_restricts_none() {
    let mut site = Site::new();
    for of in 1..=50 {
        let output = site.reading("clock_skew", host(of), Severity::Fatal, 0);
        assert_eq!(output, format!("h{of} suspect, held h{of}"));
    }
    let output = site.reading("clock_skew", host(51), Severity::Fatal, 1);
    assert!(
        output.starts_with("h51 suspect, held h1, held h2, "),
        "{output}"
    );
    assert!(output.ends_with("held h50, alert h51"), "{output}");
    let output = site.reading("clock_skew", host(52), Severity::Fatal, 2);
    assert_eq!(output, "h52 suspect, alert h52");
    let holds = site
        .health
        .conditions()
        .filter(|(_, it)| it.held().is_some());
    assert_eq!(holds.count(), 0);
    let well = site.reading("clock_skew", host(1), Severity::Healthy, 3);
    assert_eq!(well, "h1 healthy");
    let of_first = site.health.condition(&host(1)).expect("it is known");
    assert_eq!(of_first.strikes_at(TimeMs(3)), 0);
}

#[test]
fn repeated_findings_count_once() {
    let mut site = Site::new();
    let mut finding = finding("ecc_unc_volatile", gpu(1, 0), Severity::Fatal, 0);
    finding.sequence = 7;
    let mut ingest = |incarnation| {
        site.with_place(1, |health, rules, place| {
            describe(&health.ingest(rules, incarnation, &finding, place))
        })
    };
    assert_eq!(ingest(1), "g1.0 blocked(auto), kill g1.0, reset g1.0");
    assert_eq!(ingest(1), "");
    let health = &site.health;
    assert_eq!(
        (health.acknowledged(HostId(1), 1), health.findings().count()),
        (7, 1)
    );
    assert_eq!(
        health
            .condition(&gpu(1, 0))
            .expect("it is known")
            .strikes
            .at(TimeMs(0)),
        1
    );
}

#[test]
fn page_faults_of_two_users_block_the_gpu_and_a_buggy_job_none() {
    let mut site = Site::new();
    site.job = Some((1, "ann"));
    assert_eq!(site.xid(31, gpu(1, 0), 0), "");
    site.job = Some((2, "bob"));
    assert_eq!(
        site.xid(31, gpu(1, 0), HOUR_MS),
        "g1.0 blocked(auto), check g1.0"
    );
    let mut site = Site::new();
    site.job = Some((1, "ann"));
    for of in 0..4 {
        assert_eq!(site.xid(31, gpu(of, 0), u64::from(of) * MINUTE_MS), "");
        assert_eq!(site.xid(45, gpu(of, 0), u64::from(of) * MINUTE_MS + 1), "");
    }
    assert_eq!(site.health.conditions().count(), 0);
    // A single job's, repeatedly on one GPU: it is checked when idle, and never blocked; it is not suspect
    // any more once the job has them elsewhere too.
    let mut site = Site::new();
    site.job = Some((1, "ann"));
    assert_eq!(site.xid(31, gpu(1, 0), 0), "");
    assert_eq!(site.xid(31, gpu(1, 0), HOUR_MS), "g1.0 suspect, check g1.0");
    site.health.want(&gpu(1, 0), DeviceAction::Check);
    let due = site.health.due(TimeMs(HOUR_MS));
    assert_eq!(due.work, [gpu(1, 0)]);
    assert_eq!(site.xid(31, gpu(2, 0), 2 * HOUR_MS), "g1.0 healthy");
    assert_eq!(site.health.wanted(&gpu(1, 0)), None);
    // A component that has just passed its check is not checked again.
    let mut site = Site::new();
    site.job = Some((1, "ann"));
    site.xid(31, gpu(1, 0), 0);
    site.xid(31, gpu(1, 0), HOUR_MS);
    let (one, at) = (gpu(1, 0), TimeMs(HOUR_MS + 1));
    site.health.work(&one, Event::CheckBegan, "gemm", at);
    site.health.work(&one, Event::CheckPassed, "gemm", at);
    site.health.tick(at);
    assert_eq!(site.xid(31, gpu(1, 0), 2 * HOUR_MS), "");
}

#[test]
fn a_gpu_that_falls_off_the_bus_twice_in_a_week_needs_an_rma() {
    let mut site = Site::new();
    site.xid(79, gpu(1, 0), 0);
    let second = site.xid(79, gpu(1, 0), 2 * DAY_MS);
    assert_eq!(second, "g1.0 rma, kill g1.0, alert g1.0");
}

#[test]
fn a_blocked_gpu_returns_after_repair_check_and_probation() {
    let mut site = Site::new();
    let one = gpu(1, 0);
    site.xid(48, one.clone(), 0);
    let health = &mut site.health;
    let at = |minutes: u64| TimeMs(minutes * MINUTE_MS);
    assert_eq!(
        describe(&health.work(&one, Event::RepairBegan, "reset", at(1))),
        "g1.0 repairing"
    );
    assert_eq!(
        describe(&health.repaired(&one, DeviceAction::Reset, at(2))),
        "g1.0 checking"
    );
    assert_eq!(
        describe(&health.work(&one, Event::CheckPassed, "gemm", at(3))),
        "g1.0: not before 900000ms"
    );
    assert_eq!(
        describe(&health.work(&one, Event::CheckPassed, "gemm", at(15))),
        "g1.0 probation"
    );
    assert_eq!(describe(&health.tick(at(20))), "");
    assert_eq!(describe(&health.succeeded(&one, at(20))), "g1.0 healthy");
    // The second time a success is not enough.
    assert_eq!(
        site.xid(62, gpu(1, 0), 30 * MINUTE_MS),
        "g1.0 blocked(auto), kill g1.0, reset g1.0"
    );
    let health = &mut site.health;
    health.work(&one, Event::CheckBegan, "gemm", at(95));
    assert_eq!(
        describe(&health.work(&one, Event::CheckPassed, "gemm", at(95))),
        "g1.0 probation"
    );
    assert_eq!(describe(&health.succeeded(&one, at(100))), "");
    assert_eq!(describe(&health.tick(at(95 + 360))), "g1.0 healthy");
}

#[test]
fn a_healthy_reading_ends_a_block_by_its_rule() {
    let mut site = Site::new();
    let nic = Component::Nic {
        host: HostId(1),
        name: "mlx5_0/1".to_owned(),
    };
    site.reading("ib_state", nic.clone(), Severity::Fatal, 0);
    assert_eq!(
        site.reading("ib_state", nic, Severity::Healthy, HOUR_MS),
        "h1 checking"
    );
    site.reading("hw_slowdown", gpu(2, 0), Severity::Degraded, 0);
    assert_eq!(
        site.reading("hw_slowdown", gpu(2, 0), Severity::Healthy, 1),
        "g2.0 healthy, held g2.0"
    );
    // A fault that requires a check is not over because the counter does not increase.
    site.reading("ecc_unc_volatile", gpu(3, 0), Severity::Fatal, 0);
    assert_eq!(
        site.reading("ecc_unc_volatile", gpu(3, 0), Severity::Healthy, 1),
        ""
    );
    // One host's reading does not end another's block.
    site.reading("nvml_latency", host(4), Severity::Fatal, 0);
    assert_eq!(
        site.reading("nvml_latency", host(5), Severity::Healthy, 1),
        ""
    );
}

/// A component suspected by two rules is suspect until neither suspects it, and the action of one is done
/// although the other is over.
#[test]
fn a_component_suspected_by_two_rules_is_suspect_until_both_clear() {
    use Severity::{Degraded, Healthy};
    let mut site = Site::new();
    let one = || gpu(1, 0);
    let output = site.reading("hw_slowdown", one(), Degraded, 0);
    assert_eq!(output, "g1.0 suspect, held g1.0");
    let output = site.reading("gpu_recovery_peers", one(), Degraded, 1);
    assert_eq!(output, "held g1.0");
    assert_eq!(site.reading("hw_slowdown", one(), Healthy, 2), "held g1.0");
    let accused_by = |site: &Site| {
        let condition = site.health.condition(&one()).expect("it is known");
        condition.accusation().map(|it| it.rule.clone())
    };
    assert_eq!(accused_by(&site).as_deref(), Some("gpu_recovery_peers"));
    let output = site.reading("gpu_recovery_peers", one(), Healthy, 3);
    assert_eq!(output, "g1.0 healthy, held g1.0");
    // In the other order, and with a check that one of them requires.
    site.reading("hw_slowdown", one(), Degraded, 4);
    let output = site.reading("clock_low", one(), Degraded, 5);
    assert_eq!(output, "check g1.0");
    site.health.want(&one(), DeviceAction::Check);
    assert_eq!(site.reading("hw_slowdown", one(), Healthy, 6), "held g1.0");
    assert_eq!(site.health.due(TimeMs(6)).work, [one()], "it is still due");
    assert_eq!(accused_by(&site).as_deref(), Some("clock_low"));
    // Replaced rules no longer suspect anything, and others still do.
    let mut site = Site::new();
    site.reading("hw_slowdown", one(), Degraded, 0);
    site.reading("gpu_recovery_peers", one(), Degraded, 1);
    let without = |rules: &RuleSet, id: &str| {
        let mut rules = rules.clone();
        rules.rules.retain(|rule| rule.id != id);
        rules
    };
    let fewer = without(&site.rules, "hw_slowdown");
    let output = |effects: Vec<Effect>| describe(&effects);
    assert_eq!(
        output(site.health.apply_new_rules(&fewer, TimeMs(2))),
        "held g1.0"
    );
    let none = without(&fewer, "gpu_recovery_peers");
    assert_eq!(
        output(site.health.apply_new_rules(&none, TimeMs(3))),
        "g1.0 healthy, held g1.0"
    );
}

/// The restriction of a worse finding is not kept by one that requires less.
#[test]
fn the_placement_restriction_follows_the_severity_of_the_finding() {
    use Severity::{Degraded, Fatal};
    let mut site = Site::new();
    let output = site.reading("fds_pids", host(1), Fatal, 0);
    assert_eq!(output, "h1 suspect, held h1");
    let output = site.reading("fds_pids", host(1), Degraded, 1);
    assert_eq!(output, "held h1, alert h1");
    let condition = site.health.condition(&host(1)).expect("it is known");
    assert!(condition.held().is_none());
    assert_eq!(condition.phase, Phase::Suspect);
}

/// When many fail at once, a host that was out of service before is not returned for that.
#[test]
fn an_incident_withdraws_only_its_own_changes() {
    let mut site = Site::new();
    site.reading("nvlink_down", gpu(10, 0), Severity::Fatal, 0);
    // Host 10 was blocked an hour before, host 11 drains, host 12 is in probation, host 13 is suspect.
    site.reading("fs_readonly", host(10), Severity::Fatal, 0);
    site.reading("driver_lib_mismatch", host(11), Severity::Degraded, 0);
    site.reading("fs_readonly", host(12), Severity::Fatal, 0);
    site.health
        .work(&host(12), Event::CheckBegan, "gemm", TimeMs(1));
    let passed = TimeMs(15 * MINUTE_MS);
    site.health
        .work(&host(12), Event::CheckPassed, "gemm", passed);
    site.reading("clock_skew", host(13), Severity::Fatal, 0);
    let phases = |site: &Site| [10, 11, 12, 13].map(|of| site.health.phase(&host(of)));
    let before = phases(&site);
    assert_eq!(
        before,
        [
            Phase::Blocked,
            Phase::Draining,
            Phase::Probation,
            Phase::Suspect
        ]
    );
    let strikes = |site: &Site| {
        [10, 11, 12, 13].map(|of| {
            let condition = site.health.condition(&host(of)).expect("it is known");
            condition.strikes.at(TimeMs(HOUR_MS))
        })
    };
    let struck = strikes(&site);
    let at = 30 * MINUTE_MS;
    for of in 10..14 {
        site.reading("kernel_panic", host(of), Severity::Fatal, at);
        assert_eq!(site.health.phase(&host(of)), Phase::Blocked);
    }
    let output = site.reading("kernel_panic", host(14), Severity::Fatal, at);
    assert_eq!(
        output,
        "h11 draining, h12 probation, h13 suspect, incident of 5 rack"
    );
    assert_eq!(phases(&site), before);
    assert_eq!(strikes(&site), struck);
    for of in 10..14 {
        let condition = site.health.condition(&host(of)).expect("it is known");
        assert!(!condition.by_hand, "{of}");
    }
    let proving = site.health.condition(&host(12)).expect("it is known");
    assert_eq!(proving.ready_at, TimeMs(at + HOUR_MS));
}

/// However many findings arrive meanwhile, those that wait for the end of an incident are judged then.
#[test]
fn findings_deferred_by_an_incident_are_not_evicted() {
    let mut site = Site::new();
    for of in 10..15 {
        site.reading("fs_readonly", host(of), Severity::Fatal, 0);
    }
    let known = site.health.incident(HostId(14), TimeMs(1));
    let open = known.cloned().expect("it is one");
    for at in 0..FINDINGS_KEPT_MAX as u64 + 5 {
        site.reading("ecc_cor_dram", gpu(1, 0), Severity::Degraded, at);
    }
    let waits = site.health.deferred_findings(&site.rules, &open);
    assert_eq!(waits.len(), 5);
    site.health.tick(open.until);
    site.reading("ecc_cor_dram", gpu(1, 0), Severity::Degraded, open.until.0);
    assert_eq!(site.health.findings().count(), FINDINGS_KEPT_MAX);
}

#[test]
fn a_rack_that_fails_at_once_keeps_no_strike() {
    let mut site = Site::new();
    let mut all = Vec::new();
    for of in 10..20 {
        all.push(site.reading(
            "fs_readonly",
            host(of),
            Severity::Fatal,
            u64::from(of) * SECOND_MS,
        ));
    }
    // Four hosts were blocked before half of the rack was seen.
    assert_eq!(all[3], "h13 blocked(auto), reboot h13");
    assert_eq!(
        all[4],
        "h10 healthy, h11 healthy, h12 healthy, h13 healthy, incident of 5 rack"
    );
    assert!(all[5..].iter().all(String::is_empty), "{all:?}");
    for of in 10..20 {
        assert_eq!(site.health.phase(&host(of)), Phase::Healthy);
        let strikes = site
            .health
            .condition(&host(of))
            .map_or(0, |it| it.strikes.at(TimeMs(20_000)));
        assert_eq!(strikes, 0, "{of}");
    }
    let over = site.health.tick(TimeMs(14 * SECOND_MS + 120 * SECOND_MS));
    assert_eq!(describe(&over), "over of 10");
}

/// Effects of an incident: recent faults of its hosts are no strikes.
fn excuse(site: &mut Site, incident: &Incident, now: u64) {
    for of in &incident.hosts {
        for component in (0..8).map(|index| gpu(of.0, index)).chain([host(of.0)]) {
            site.health.withdraw_strike(*of, &component, TimeMs(now));
        }
    }
}

#[test]
fn a_fabric_that_fails_takes_gpus_out_and_strikes_none() {
    let mut site = Site::new();
    let mut all = Vec::new();
    for of in 10..16u32 {
        let at = u64::from(of) * SECOND_MS;
        let found = finding("nvlink_down", gpu(of, 0), Severity::Fatal, at);
        let effects = site.ingest(of, found);
        for effect in &effects {
            if let Effect::Incident(incident) = effect {
                excuse(&mut site, incident, at);
            }
        }
        all.push(describe(&effects));
        // A second GPU of a host does not count as a second host.
        let found = finding("nvlink_down", gpu(of, 1), Severity::Fatal, at);
        assert!(
            !describe(&site.ingest(of, found)).contains("incident"),
            "{of}"
        );
    }
    assert_eq!(all[0], "g10.0 blocked(auto), kill g10.0, reset g10.0");
    assert_eq!(
        all[4],
        "incident of 5 rack, g14.0 blocked(auto), kill g14.0, reset g14.0"
    );
    for of in 10..16 {
        for component in [gpu(of, 0), gpu(of, 1)] {
            let condition = site.health.condition(&component).expect("it is known");
            assert_eq!(condition.phase, Phase::Blocked, "{component}");
            assert_eq!(condition.strikes.at(TimeMs(20_000)), 0, "{component}");
            assert!(condition.ready_at <= TimeMs(20_000), "it waits for no time");
        }
    }
    // Nor do they make lemons of their hosts.
    assert!(
        site.health
            .lemons(&site.rules, TimeMs(20_000), &Excludes::new())
            .is_empty()
    );
    // Once it is over, new faults are strikes again.
    site.health.tick(TimeMs(200 * SECOND_MS));
    site.reading("nvlink_down", gpu(10, 2), Severity::Fatal, 201 * SECOND_MS);
    let struck = site.health.condition(&gpu(10, 2)).expect("it is known");
    assert_eq!(struck.strikes.at(TimeMs(201 * SECOND_MS)), 1);
}

#[test]
fn a_drain_excused_by_an_incident_adds_no_strike() {
    let mut site = Site::new();
    for of in 10..15u32 {
        let found = finding("nvlink_replay", gpu(of, 0), Severity::Fatal, 0);
        for effect in site.ingest(of, found) {
            if let Effect::Incident(incident) = effect {
                excuse(&mut site, &incident, 0);
            }
        }
    }
    for of in [10, 14] {
        let one = gpu(of, 0);
        let drained = site.health.drained(&one, TimeMs(90 * SECOND_MS));
        assert_eq!(describe(&drained), format!("g{of}.0 blocked(auto)"));
        let condition = site.health.condition(&one).expect("it is known");
        assert_eq!(condition.strikes.at(TimeMs(90 * SECOND_MS)), 0);
    }
}

#[test]
fn hosts_that_fall_silent_together_are_one_incident_and_expected_silence_is_none() {
    let mut site = Site::new();
    let silent = |site: &mut Site, of: u32, at: u64| {
        site.with_place(of, |health, rules, place| {
            describe(&health.fell_silent(rules, place.host, place.groups, TimeMs(at)))
        })
    };
    let block = admin(Event::AdminBlock, "maintenance", 0, None);
    for of in 20..30 {
        site.health.change(&host(of), block.clone());
        assert_eq!(silent(&mut site, of, 1), "", "{of}");
    }
    for of in 10..14 {
        assert_eq!(silent(&mut site, of, 1), "", "{of}");
    }
    assert_eq!(silent(&mut site, 14, 1), "incident of 5 rack");
    assert_eq!(silent(&mut site, 15, 2), "");
    assert!(site.health.incident(HostId(15), TimeMs(2)).is_some());
    assert!(site.health.incident(HostId(20), TimeMs(2)).is_none());
}

#[test]
fn a_host_that_takes_many_tasks_with_it_has_failed_once_and_in_an_incident_never() {
    let mut site = Site::new();
    let mut gone = found(Class::Host, host(10), Measure::Requeue);
    gone.attribution.charge = Charge::Infra;
    let ends = |site: &mut Site, at: u64| {
        for job in 0..5 {
            let on = FailedEnd {
                job: JobId(job),
                hosts: vec![HostId(10)],
                at: TimeMs(at + job * SECOND_MS),
                ..FailedEnd::default()
            };
            site.with_place(10, |health, rules, place| {
                health.ended(rules, &gone, &on, place)
            });
        }
    };
    let single = |site: &Site, at: u64| {
        let record = site.health.records.get(&HostId(10));
        record.map_or(0, |it| it.counts(TimeMs(at), 0).single_milli)
    };
    ends(&mut site, 0);
    assert_eq!(single(&site, MINUTE_MS), 1_000);
    ends(&mut site, 5 * MINUTE_MS);
    assert_eq!(single(&site, 6 * MINUTE_MS), 2_000);
    for of in 10..20 {
        site.with_place(of, |health, rules, place| {
            health.fell_silent(rules, place.host, place.groups, TimeMs(HOUR_MS))
        });
    }
    ends(&mut site, HOUR_MS + 30 * SECOND_MS);
    assert_eq!(single(&site, HOUR_MS + MINUTE_MS), 2_000);
    assert!(
        site.health
            .lemons(&site.rules, TimeMs(2 * HOUR_MS), &Excludes::new())
            .is_empty()
    );
}

#[test]
fn a_power_brake_on_two_hosts_of_a_rack_counts_for_the_rack() {
    use Severity::{Degraded, Healthy};
    let mut site = Site::new();
    let hosts: Vec<HostId> = (10..13).map(HostId).collect();
    let rules = site.rules.clone();
    let rule = rules.rule("power_brake").expect("it is shipped");
    let mut report = |of: u32, severity, at| {
        let power_brake = finding("power_brake", host(of), severity, at);
        let rack = Rack {
            name: "r1",
            hosts: &hosts,
        };
        describe(
            &site
                .health
                .aggregate_rack(rule, HostId(of), &power_brake, rack),
        )
    };
    assert_eq!(report(10, Degraded, 0), "");
    assert_eq!(
        report(11, Degraded, 1),
        "incident of 2 rack, alert rack r1, held h10, held h11, held h12"
    );
    assert_eq!(report(12, Degraded, 2), "");
    assert_eq!(report(10, Healthy, 3), "");
    assert_eq!(report(11, Healthy, 4), "held h10, held h11, held h12");
    assert_eq!(report(12, Healthy, 5), "");
}

#[test]
fn a_bad_soft_rule_blocks_a_twentieth_and_alerts() {
    let mut site = Site::new();
    let mut railed = 0;
    for of in 0..60 {
        for index in 0..8 {
            let at = u64::from(of) * 90 * SECOND_MS / 8;
            let found = site.reading("xid31_same_gpu", gpu(of, index), Severity::Fatal, at);
            site.view.gpus_blocked_soft += u32::from(found.contains("blocked"));
            railed += u32::from(found.contains("breaker on"));
        }
    }
    assert_eq!(site.view.gpus_blocked_soft, 40);
    assert!(railed > 400);
    // The rest is suspect, and continues.
    assert_eq!(site.health.phase(&gpu(59, 7)), Phase::Suspect);
    // A copy of the state, as a new leader has it, refuses as well.
    let health = site.health.clone();
    assert!(
        health
            .rails()
            .breaker("all")
            .expect("it was needed")
            .is_tripped()
    );
}

#[test]
fn an_admins_unblock_overrides_rules() {
    let mut site = Site::new();
    site.xid(48, gpu(1, 0), 0);
    let unblock = admin(Event::AdminUnblock, "it is fine", 1_000, None);
    let effects = site.health.admin(&gpu(1, 0), unblock);
    assert_eq!(describe(&effects), "g1.0 healthy");
    let muted = site.xid(95, gpu(1, 0), HOUR_MS);
    assert!(
        muted.starts_with("g1.0: rule xid is muted here for a day"),
        "{muted}"
    );
    // Blocked by an admin, found faulty meanwhile, expired: blocked for the finding.
    let block = admin(Event::AdminBlock, "cabling", 0, Some(HOUR_MS));
    site.health.admin(&gpu(2, 0), block);
    assert_eq!(site.xid(48, gpu(2, 0), MINUTE_MS), "reset g2.0");
    let again = site.xid(48, gpu(2, 0), 2 * MINUTE_MS);
    assert_eq!(again, "", "nothing is asked of the rails again");
    let over = site.health.expired(&gpu(2, 0), TimeMs(HOUR_MS));
    assert_eq!(describe(&over), "g2.0 blocked(auto)");
}

#[test]
fn repairs_are_limited_and_repeated_failures_are_left_to_an_operator() {
    let mut site = Site::new();
    site.view.repairs = 10;
    assert_eq!(
        site.xid(48, gpu(1, 0), 0),
        "g1.0 blocked(auto), kill g1.0, repairs on g1.0"
    );
    site.view.repairs = 0;
    let mut at = DAY_MS;
    for _ in 0..2 {
        assert_eq!(
            site.reading("fs_readonly", host(2), Severity::Fatal, at),
            "h2 blocked(auto), reboot h2"
        );
        let health = &mut site.health;
        health.work(&host(2), Event::RepairBegan, "reboot", TimeMs(at));
        health.repaired(&host(2), DeviceAction::Reboot, TimeMs(at));
        health.work(
            &host(2),
            Event::CheckPassed,
            "gemm",
            TimeMs(at + 2 * HOUR_MS),
        );
        health.tick(TimeMs(at + 10 * HOUR_MS));
        at += 11 * HOUR_MS;
    }
    assert_eq!(
        site.reading("fs_readonly", host(2), Severity::Fatal, at),
        "h2 blocked(auto), alert h2"
    );
}

fn found(class: Class, component: Component, measure: Measure) -> AttributionOutcome {
    AttributionOutcome {
        attribution: Attribution {
            class,
            component: Some(component),
            confidence_permille: 700,
            evidence: vec!["2 jobs of 2 users failed".to_owned()],
            charge: Charge::Infra,
            measures: vec![measure],
            step: Step::Pattern,
        },
        suspicions: Vec::new(),
        takes_back: false,
    }
}

/// End of a user's job on the first GPU of a host.
fn end(job: u64, user: &str, of: u32, at: u64) -> FailedEnd {
    FailedEnd {
        at: TimeMs(at),
        job: JobId(job),
        program: Program {
            user: user.to_owned(),
            image: String::new(),
        },
        hosts: vec![HostId(of)],
        gpus: vec![GpuUuid(u128::from(of * 8))],
        cause: None,
    }
}

/// An unexplained end.
fn open_end(site: &mut Site, end: &FailedEnd) {
    let mut open = found(
        Class::Unknown,
        host(end.hosts[0].0),
        Measure::RetryElsewhere,
    );
    open.attribution.confidence_permille = 200;
    open.attribution.charge = Charge::User;
    site.with_place(end.hosts[0].0, |health, rules, place| {
        health.ended(rules, &open, end, place)
    });
}

#[test]
fn failures_attributed_to_the_site_do_not_count_against_hosts() {
    let failures = |class| {
        let mut site = Site::new();
        let mut refused = found(class, host(10), Measure::Requeue);
        refused.attribution.component = None;
        site.with_place(10, |health, rules, place| {
            health.ended(rules, &refused, &end(1, "ann", 10, 0), place)
        });
        let record = site.health.records.get(&HostId(10));
        record.map_or(0, |it| it.counts(TimeMs(MINUTE_MS), 0).failures)
    };
    assert_eq!(failures(Class::Host), 1);
    assert_eq!(failures(Class::Site), 0);
}

#[test]
fn missing_files_count_against_a_host_for_a_day_or_until_their_jobs_are_cleared() {
    let mut site = Site::new();
    let missing = |job: u64, user: &str, at: u64| {
        FailedEnd::missing_file(TimeMs(at), JobId(job), user, HostId(10))
    };
    let users = |site: &Site, at: u64| {
        let next = missing(9, "eve", at);
        site.health.history(&next).users_missing
    };
    assert_eq!(users(&site, 0), 1);
    site.health.keep_end(&missing(1, "ann", 0));
    site.health.keep_end(&missing(2, "ann", 0));
    assert_eq!(users(&site, 1), 2);
    site.health.keep_end(&missing(3, "bob", HOUR_MS));
    // Failures for another reason, or elsewhere, do not count.
    open_end(&mut site, &end(4, "dan", 10, HOUR_MS));
    let elsewhere = FailedEnd::missing_file(TimeMs(HOUR_MS), JobId(5), "fay", HostId(11));
    site.health.keep_end(&elsewhere);
    assert_eq!(users(&site, HOUR_MS), 3);
    assert_eq!(users(&site, DAY_MS + 1), 2);
    // Jobs that miss it everywhere no longer count against any host, and nothing is taken off its record that
    // was not there.
    assert_eq!(site.health.failed_alone_on(JobId(3)), []);
    site.health.drop_ends(JobId(3));
    assert_eq!(users(&site, HOUR_MS), 2);
}

#[test]
fn an_end_is_compared_with_those_of_a_day() {
    let mut site = Site::new();
    open_end(&mut site, &end(1, "ann", 1, 0));
    open_end(&mut site, &end(2, "bob", 1, HOUR_MS));
    open_end(&mut site, &end(2, "bob", 2, HOUR_MS));
    let ran = |site: &mut Site, user: &str, of: u32| {
        let program = end(0, user, of, 0).program;
        let gpu = GpuUuid(u128::from(of * 8));
        site.health.record_success(&program, gpu, TimeMs(HOUR_MS));
    };
    let blamed = |site: &Site, at: u64| {
        let history = site.health.history(&end(3, "eve", 1, at));
        let past = history.gpus.get(&GpuUuid(8)).into_iter().flatten();
        let shown = past.map(|it| format!("{} {} {}", it.job, it.user, it.runs_elsewhere));
        (shown.collect::<Vec<_>>().join(", "), history.runs_elsewhere)
    };
    let both = "1 ann false, 2 bob false".to_owned();
    assert_eq!(blamed(&site, 2 * HOUR_MS), (both, false));
    // A success on the GPU itself does not exonerate it by the program.
    ran(&mut site, "ann", 1);
    ran(&mut site, "bob", 3);
    ran(&mut site, "eve", 4);
    let bobs = "1 ann false, 2 bob true".to_owned();
    assert_eq!(blamed(&site, 2 * HOUR_MS), (bobs, true));
    ran(&mut site, "ann", 5);
    let both = "1 ann true, 2 bob true".to_owned();
    assert_eq!(blamed(&site, 2 * HOUR_MS), (both, true));
    let later = "2 bob true".to_owned();
    assert_eq!(blamed(&site, DAY_MS + HOUR_MS), (later, true));
    // A job that fails everywhere withdraws its suspicions against others.
    let mut everywhere = found(Class::User, host(9), Measure::BackOff);
    everywhere.takes_back = true;
    let last = end(2, "bob", 9, 3 * HOUR_MS);
    site.with_place(9, |health, rules, place| {
        health.ended(rules, &everywhere, &last, place)
    });
    let anns = "1 ann true".to_owned();
    assert_eq!(blamed(&site, 4 * HOUR_MS), (anns, true));
}

#[test]
fn failures_with_one_image_are_counted_over_jobs_and_hosts() {
    let mut site = Site::new();
    let in_image = |job: u64, of: u32, image: &str| {
        let mut end = end(job, "ann", of, 0);
        end.program.image = image.to_owned();
        end
    };
    open_end(&mut site, &in_image(1, 1, "torch:1"));
    open_end(&mut site, &in_image(2, 2, "torch:1"));
    open_end(&mut site, &in_image(3, 3, "torch:2"));
    let spread = site.health.history(&in_image(4, 4, "torch:1")).image;
    assert_eq!((spread.jobs, spread.hosts), (3, 3));
    let spread = site.health.history(&in_image(4, 4, "")).image;
    assert_eq!((spread.jobs, spread.hosts), (1, 1));
}

#[test]
fn kept_ends_and_programs_are_bounded() {
    let mut site = Site::new();
    for job in 0..ENDS_KEPT_MAX as u64 + 10 {
        open_end(&mut site, &end(job, "ann", 1, job));
        let program = Program {
            user: format!("user {job}"),
            image: String::new(),
        };
        site.health
            .record_success(&program, GpuUuid(1), TimeMs(job));
    }
    let parts: Vec<Part> = site.health.parts().collect();
    let count = |is: &dyn Fn(&Part) -> bool| parts.iter().filter(|part| is(part)).count();
    let ends = count(&|part| matches!(part, Part::End(_)));
    let programs = count(&|part| matches!(part, Part::RanWell(..)));
    assert_eq!((ends, programs), (ENDS_KEPT_MAX, PROGRAMS_KEPT_MAX));
    // A day later the old ones make room.
    let program = Program {
        user: "late".to_owned(),
        image: String::new(),
    };
    site.health
        .record_success(&program, GpuUuid(1), TimeMs(2 * DAY_MS));
    open_end(&mut site, &end(1, "ann", 1, 2 * DAY_MS));
    assert!(site.health.parts().count() < 10);
}

#[test]
fn an_attributed_end_blocks_for_a_check_within_its_budgets() {
    let mut site = Site::new();
    let mut blocked = 0;
    for job in 0..10u32 {
        site.job = Some((u64::from(job), "eve"));
        open_end(&mut site, &end(100, "ann", job, u64::from(job)));
        let on = end(u64::from(job), "eve", job, u64::from(job));
        let found = found(Class::Gpu, gpu(job, 0), Measure::BlockForCheck);
        let effects = site.with_place(job, |health, rules, place| {
            describe(&health.ended(rules, &found, &on, place))
        });
        blocked += u32::from(effects == format!("g{job}.0 blocked(auto), check g{job}.0"));
        if job > 3 {
            let expected = format!("tenant on g{job}.0, g{job}.0 suspect, check g{job}.0");
            assert_eq!(effects, expected);
        }
    }
    assert_eq!(blocked, 3);
    let on = FailedEnd {
        hosts: vec![HostId(50)],
        at: TimeMs(99),
        ..FailedEnd::default()
    };
    let idle = found(Class::Gpu, gpu(50, 0), Measure::CheckIdle);
    let effects = site.with_place(50, |health, rules, place| {
        describe(&health.ended(rules, &idle, &on, place))
    });
    assert_eq!(effects, "g50.0 suspect, check g50.0");
}

#[test]
fn a_lemon_is_drained_for_a_check() {
    let mut site = Site::new();
    let now = TimeMs(DAY_MS);
    for of in 0..100u32 {
        for task in 0..40u32 {
            let now = TimeMs(DAY_MS - HOUR_MS + u64::from(task) * 61 * SECOND_MS);
            site.health.started(HostId(of), now);
            let fails = if of == 7 {
                task.is_multiple_of(4)
            } else {
                of.is_multiple_of(3) && task == 5
            };
            if fails {
                let mut open = found(Class::Unknown, host(of), Measure::RetryElsewhere);
                open.attribution.charge = Charge::User;
                let on = FailedEnd {
                    hosts: vec![HostId(of)],
                    at: now,
                    ..FailedEnd::default()
                };
                site.with_place(of, |health, rules, place| {
                    health.ended(rules, &open, &on, place)
                });
            }
        }
    }
    let lemons: Vec<HostId> = site
        .health
        .lemons(&site.rules, now, &Excludes::new())
        .into_iter()
        .map(|(host, _)| host)
        .collect();
    assert_eq!(lemons, [HostId(7)]);
    let before = site.health.clone();
    let effects = site.with_place(7, |health, rules, place| {
        describe(&health.drain_lemon(rules, HostId(7), place, &Excludes::new(), now))
    });
    assert_eq!(effects, "h7 draining, check h7");
    // If the guard rails refuse, it remains one: it is proposed again an hour later.
    let health = std::mem::replace(&mut site.health, before);
    site.view.hosts_in_service = 1;
    let drain = |site: &mut Site, now| {
        site.with_place(7, |health, rules, place| {
            describe(&health.drain_lemon(rules, HostId(7), place, &Excludes::new(), now))
        })
    };
    assert_eq!(drain(&mut site, now), "last_host on h7, h7 suspect");
    assert_eq!(
        site.health.lemons(&site.rules, now, &Excludes::new()).len(),
        1
    );
    assert!(site.health.is_refused_lemon(HostId(7), now));
    let later = now.after(HOUR_MS);
    assert!(!site.health.is_refused_lemon(HostId(7), later));
    drain(&mut site, later);
    assert!(site.health.is_refused_lemon(HostId(7), later));
    site.view.hosts_in_service = 100;
    let last = later.after(HOUR_MS);
    assert_eq!(drain(&mut site, last), "h7 draining, check h7");
    assert!(
        site.health
            .lemons(&site.rules, last, &Excludes::new())
            .is_empty()
    );
    site.health = health;
    let effects = site.with_place(8, |health, rules, place| {
        describe(&health.drain_lemon(rules, HostId(8), place, &Excludes::new(), now))
    });
    assert_eq!(effects, "");
}

/// A failure counted against hosts is withdrawn there once the job fails in the same way elsewhere.
#[test]
fn failures_of_a_job_that_fails_everywhere_are_withdrawn_from_its_hosts() {
    let mut site = Site::new();
    let failures = |site: &Site, of: u32| {
        let record = site.health.records.get(&HostId(of));
        record.map_or(0, |it| it.counts(TimeMs(HOUR_MS), 0).failures)
    };
    let mut crash = found(Class::User, host(1), Measure::Requeue);
    (
        crash.attribution.component,
        crash.attribution.confidence_permille,
    ) = (None, 600);
    crash.attribution.charge = Charge::User;
    let mut everywhere = crash.clone();
    everywhere.attribution.confidence_permille = 900;
    everywhere.takes_back = true;
    let mut ended = |of: u32, found: &AttributionOutcome| {
        let mut on = end(5, "ann", of, u64::from(of) * MINUTE_MS);
        on.gpus.clear();
        site.with_place(of, |health, rules, place| {
            health.ended(rules, found, &on, place)
        });
        [1, 2, 3].map(|of| failures(&site, of))
    };
    assert_eq!(ended(1, &crash), [1, 0, 0]);
    assert_eq!(ended(3, &crash), [1, 0, 1]);
    assert_eq!(ended(2, &everywhere), [0, 0, 0]);
}

/// From the third strike on a check is thorough, and so is that of a lemon.
#[test]
fn repeated_failures_lead_to_thorough_checks() {
    let mut site = Site::new();
    let one = gpu(1, 0);
    let mut thorough = Vec::new();
    for strike in 0..3 {
        let at = TimeMs(strike * 3 * DAY_MS);
        site.reading("nvlink_down", one.clone(), Severity::Fatal, at.0);
        site.health.work(&one, Event::CheckBegan, "gemm", at);
        let mut orders = site.health.orders(HostId(1), [GpuUuid(8)].into_iter());
        thorough.push(orders.next().map(|order| order.is_thorough));
        drop(orders);
        let later = at.after(2 * DAY_MS);
        site.health.work(&one, Event::CheckPassed, "gemm", later);
        site.health.tick(later.after(DAY_MS));
    }
    assert_eq!(thorough, [Some(false), Some(false), Some(true)]);
}

#[test]
fn suspicion_of_gangs_adds_up() {
    let mut site = Site::new();
    for at in 0..4 {
        let mut hang = found(Class::Unknown, host(1), Measure::RetryElsewhere);
        hang.suspicions = vec![
            Suspicion {
                component: host(1),
                milli: 1_000,
            },
            Suspicion {
                component: host(2),
                milli: 100,
            },
        ];
        let on = FailedEnd {
            hosts: vec![HostId(1), HostId(2)],
            at: TimeMs(at),
            ..FailedEnd::default()
        };
        site.with_place(1, |health, rules, place| {
            health.ended(rules, &hang, &on, place)
        });
    }
    let lemons: Vec<HostId> = site
        .health
        .lemons(&site.rules, TimeMs(9), &Excludes::new())
        .into_iter()
        .map(|(host, _)| host)
        .collect();
    assert_eq!(lemons, [HostId(1)]);
}

/// Exclusion by users alone makes no lemon of a host, but tips one that nearly is.
#[test]
fn user_excludes_count_with_other_evidence_against_a_host() {
    let mut site = Site::new();
    for at in 0..5 {
        let mut hang = found(Class::Unknown, host(1), Measure::RetryElsewhere);
        hang.suspicions = vec![Suspicion {
            component: host(1),
            milli: 520,
        }];
        let on = FailedEnd {
            hosts: vec![HostId(1), HostId(2)],
            at: TimeMs(at),
            ..FailedEnd::default()
        };
        site.with_place(1, |health, rules, place| {
            health.ended(rules, &hang, &on, place)
        });
    }
    let score = |excludes: &[(HostId, u32)]| {
        let excludes = excludes.iter().copied().collect();
        let lemons = site.health.lemons(&site.rules, TimeMs(9), &excludes);
        lemons.first().map(|(host, score)| (*host, score.milli))
    };
    let without = score(&[]);
    let with = score(&[(HostId(1), 4), (HostId(9), 50)]);
    let milli = |of: Option<(HostId, u32)>| of.map_or(0, |(_, milli)| milli);
    assert_eq!(with.map(|(host, _)| host), Some(HostId(1)));
    assert!(milli(with) >= milli(without) + 400, "{without:?} {with:?}");
}

#[test]
fn an_observed_rule_blocks_once_it_is_enforced() {
    let mut site = Site::new();
    assert_eq!(
        site.reading("pcie_fatal", gpu(1, 0), Severity::Fatal, 0),
        ""
    );
    let rule = site
        .rules
        .rules
        .iter_mut()
        .find(|rule| rule.id == "pcie_fatal");
    rule.expect("it is shipped").mode = Mode::Enforce;
    assert_eq!(
        site.reading("pcie_fatal", gpu(1, 0), Severity::Fatal, 1),
        "h1 blocked(auto), reboot h1"
    );
}

#[test]
fn removed_components_are_forgotten() {
    let mut site = Site::new();
    site.xid(48, gpu(1, 0), 0);
    let nic = Component::Nic {
        host: HostId(1),
        name: "mlx5_0/1".to_owned(),
    };
    site.reading("ib_state", nic.clone(), Severity::Degraded, 0);
    assert_eq!(site.health.phase(&nic), Phase::Suspect);
    for component in [gpu(1, 0), host(1)] {
        site.health.forget(&component);
    }
    assert_eq!(site.health.conditions().count(), 0);
    for at in 0..FINDINGS_KEPT_MAX as u64 + 5 {
        site.reading("hw_slowdown", gpu(3, 0), Severity::Degraded, at);
    }
    assert_eq!(site.health.findings().count(), FINDINGS_KEPT_MAX);
}

#[test]
fn a_cleared_component_is_checked_without_its_pending_repair() {
    let mut site = Site::new();
    assert_eq!(
        site.xid(48, gpu(2, 0), 1),
        "g2.0 blocked(auto), kill g2.0, reset g2.0"
    );
    site.health.want(&gpu(2, 0), DeviceAction::Reset);
    assert!(site.health.wants_repair(&gpu(2, 0)));
    let well = Change {
        actor: Actor::Time,
        ..admin(Event::Clear, "its reading is well", 2, None)
    };
    assert_eq!(
        describe(&site.health.change(&gpu(2, 0), well)),
        "g2.0 checking"
    );
    assert!(!site.health.wants_repair(&gpu(2, 0)));
}

/// A fault ends while tasks run on its host: they are not stopped for the check, and nothing reboots.
#[test]
fn a_cleared_fault_on_a_busy_host_is_checked_once_it_is_idle() {
    for (is_idle, expected, phase) in [
        (true, "h4 checking", Phase::Checking),
        (false, "", Phase::Blocked),
    ] {
        let mut site = Site::new();
        site.is_idle = is_idle;
        site.reading("nvml_latency", host(4), Severity::Fatal, 0);
        site.health.want(&host(4), DeviceAction::Reboot);
        let over = site.reading("nvml_latency", host(4), Severity::Healthy, 1);
        assert_eq!(over, expected);
        assert_eq!(site.health.phase(&host(4)), phase);
        assert!(!site.health.wants_repair(&host(4)));
    }
}
