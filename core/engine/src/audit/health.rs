//! Health state and placement agree, and nothing runs during a repair or a check.

use std::collections::BTreeSet;

use muster_health::component::{self, Condition};
use muster_model::command::Block;
use muster_model::health::{Component, DeviceAction, Hold, Phase};
use muster_model::host::Host;
use muster_model::ids::{GpuUuid, HostId};

use crate::audit::{Report, Rule};
use crate::state::{Attempt, Job, State};

/// Prefix of the author of a block set by a rule.
const RULES_AUTHOR: &str = "rule:";

pub(super) fn check(state: &State, report: &mut Report) {
    for host in state.hosts.values() {
        let of_host = Component::Host(host.id);
        check_block(state, &of_host, host.block.as_ref(), report);
        for gpu in &host.gpus {
            let of_gpu = Component::Gpu(gpu.uuid);
            check_block(state, &of_gpu, gpu.block.as_ref(), report);
        }
        check_limits(state, host, report);
    }
    check_plans(state, report);
    check_shared(state, report);
    let held = if state.health.has_conditions() {
        AllocatedParts::of(state)
    } else {
        AllocatedParts::default()
    };
    for (component, condition) in state.health.conditions() {
        let place = place_of(state, component);
        report.require(place.is_some(), Rule::Health, component, || {
            "it has a health record and does not exist".to_owned()
        });
        let Some(runs) = place.map(|host| held.has(host, component)) else {
            continue;
        };
        let phase = condition.phase;
        let is_suspected = !condition.suspected.is_empty();
        let may_be = match phase {
            Phase::Suspect => is_suspected,
            Phase::Draining | Phase::Blocked => true,
            _ => !is_suspected,
        };
        report.require(may_be, Rule::Health, component, || {
            format!(
                "it is {phase}, and {} rules suspect it",
                condition.suspected.len()
            )
        });
        let must_be_empty = matches!(phase, Phase::Repairing | Phase::Checking);
        report.require(!(must_be_empty && runs), Rule::Health, component, || {
            format!("it is {phase} while something runs there")
        });
        let waits = matches!(phase, Phase::Draining | Phase::DrainingAdmin);
        report.require(!waits || runs, Rule::Health, component, || {
            format!("it is {phase} and nothing runs there")
        });
        let is_repaired = phase == Phase::Repairing;
        let wants = state.health.wants_repair(component);
        report.require(!is_repaired || wants, Rule::Health, component, || {
            "it is being repaired without a known action".to_owned()
        });
        let reboots = state.health.wanted(component) == Some(DeviceAction::Reboot);
        let is_host = matches!(component, Component::Host(_));
        report.require(!reboots || is_host, Rule::Health, component, || {
            "its host is to be rebooted for it, with all that runs there".to_owned()
        });
        let is_kept = phase.is_admins() && condition.pending.is_some();
        let may_want = is_repaired || is_kept || matches!(phase, Phase::Blocked | Phase::Draining);
        report.require(!wants || may_want, Rule::Health, component, || {
            format!("it is {phase} and waits for a repair")
        });
    }
}

/// Checks that incidents and rack findings refer to existing hosts, and that incidents end.
fn check_shared(state: &State, report: &mut Report) {
    for incident in state.health.incidents() {
        let subject = incident.group.to_string();
        let is_real = !incident.hosts.is_empty() && incident.since < incident.until;
        report.require(is_real, Rule::Health, &subject, || {
            format!("an incident of {} hosts", incident.hosts.len())
        });
        for host in &incident.hosts {
            let exists = state.hosts.contains_key(host);
            report.require(exists, Rule::Health, &subject, || {
                format!("host {host} is part of the incident, and does not exist")
            });
        }
    }
    for (rule, host) in state.health.of_racks() {
        let exists = state.hosts.contains_key(&host);
        report.require(exists, Rule::Health, &Component::Host(host), || {
            format!("it has a rack finding of rule {rule} and does not exist")
        });
    }
}

/// Checks that nothing was placed on a host after its block was planned unless it ends before the block
/// begins.
fn check_plans(state: &State, report: &mut Report) {
    for host in state.hosts.values() {
        let is_plan = host
            .planned
            .as_ref()
            .is_none_or(|block| block.planned.is_some());
        report.require(is_plan, Rule::Health, &Component::Host(host.id), || {
            "a block is planned for it without a start time".to_owned()
        });
    }
    if state.hosts.values().all(|host| host.planned.is_none()) {
        return;
    }
    for job in state.jobs.values() {
        let units = job.units.values();
        for attempt in units.filter_map(|unit| unit.attempt.as_deref()) {
            check_in_time(state, job, attempt, report);
        }
    }
}

/// Checks an attempt against the blocks planned for its hosts before its placement.
fn check_in_time(state: &State, job: &Job, attempt: &Attempt, report: &mut Report) {
    let placed_at = attempt.placed_at;
    for host in attempt.hosts() {
        let planned = state.host(host).and_then(|host| host.planned.as_ref());
        let Some(block) = planned.filter(|block| block.since < placed_at) else {
            continue;
        };
        let is_in_time = block.allows_start(placed_at, job.spec.scheduling.run_time_ms_max);
        report.require(is_in_time, Rule::Health, &Component::Host(host), || {
            let at = block.planned.map(|planned| planned.at).unwrap_or_default();
            let job = job.id;
            format!("job {job} was placed at {placed_at}, and it is to be blocked at {at}")
        });
    }
}

/// Checks that exactly the components out of placement by their health are blocked; blocks by users are not
/// affected.
fn check_block(state: &State, component: &Component, block: Option<&Block>, report: &mut Report) {
    let phase = state.health.phase(component);
    let condition = state.health.condition(component);
    let keeps_off = |held: &component::Restriction| held.what == Hold::Everything;
    let is_held = condition.and_then(Condition::held).is_some_and(keeps_off);
    let is_out = is_held || !phase.accepts_work();
    report.require(is_out == block.is_some(), Rule::Health, component, || {
        format!("it is {phase}, and its block is {block:?}")
    });
    if let Some(block) = block {
        let is_rules = block.author.starts_with(RULES_AUTHOR);
        report.require(
            is_rules != phase.is_admins(),
            Rule::Health,
            component,
            || format!("it is {phase} by {}", block.author),
        );
        // A block by a rule names the rule and its evidence.
        let rule = block.author.strip_prefix(RULES_AUTHOR);
        let is_founded = rule.is_none_or(|it| !it.is_empty() && !block.evidence.is_empty());
        report.require(is_founded, Rule::Health, component, || {
            format!(
                "its block by `{}` rests on `{}`",
                block.author, block.evidence
            )
        });
    }
}

fn check_limits(state: &State, host: &Host, report: &mut Report) {
    let gpus = host.gpus.iter().map(|gpu| Component::Gpu(gpu.uuid));
    let places: Vec<Component> = gpus.chain([Component::Host(host.id)]).collect();
    let adapters = state.health.adapters_of(host.id);
    let keeps_gangs_off = |component: &Component| {
        let condition = state.health.condition(component);
        condition.is_some_and(|condition| !condition.holds.is_empty())
    };
    let no_gangs = places.iter().chain(&adapters).any(keeps_gangs_off);
    let subject = format!("host {}", host.id);
    report.require(host.no_gangs == no_gangs, Rule::Health, &subject, || {
        format!("no_gangs is {}", host.no_gangs)
    });
    let mut phases = places.iter().map(|component| state.health.phase(component));
    let expected = phases.any(|phase| phase == Phase::Probation);
    report.require(
        host.on_probation == expected,
        Rule::Health,
        &subject,
        || format!("on_probation is {}", host.on_probation),
    );
}

fn place_of(state: &State, component: &Component) -> Option<HostId> {
    match component {
        Component::Gpu(uuid) => state.gpu(*uuid).map(|(host, _)| host.id),
        Component::Host(host) | Component::Nic { host, .. } => {
            state.hosts.contains_key(host).then_some(*host)
        }
        Component::Rack(_) => None,
    }
}

/// Resources held by attempts, according to the jobs.
#[derive(Default)]
struct AllocatedParts {
    hosts: BTreeSet<HostId>,
    gpus: BTreeSet<GpuUuid>,
}

impl AllocatedParts {
    fn of(state: &State) -> Self {
        let units = state.jobs.values().flat_map(|job| job.units.values());
        let attempts = units.filter_map(|unit| unit.attempt.as_deref());
        let mut held = Self::default();
        for run in attempts.flat_map(|attempt| &attempt.tasks) {
            held.hosts.insert(run.host);
            held.gpus.extend(&run.gpus);
        }
        held
    }

    fn has(&self, host: HostId, component: &Component) -> bool {
        match component {
            Component::Gpu(uuid) => self.gpus.contains(uuid),
            _ => self.hosts.contains(&host),
        }
    }
}
