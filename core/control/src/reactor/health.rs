//! Health: new findings, finished repairs and checks, repairs and checks that may start, and timed
//! transitions.

use std::collections::BTreeSet;

use muster_engine::apply::is_idle_component;
use muster_engine::state::{Pools, State};
use muster_health::lemons::{Feature, Score};
use muster_model::command::{Command, HealthCommand, HostHealth};
use muster_model::health::{Component, DeviceAction, Phase, WorkStep};
use muster_model::host::Host;
use muster_model::ids::{HostId, LeadershipEpoch};
use muster_model::time::TimeMs;

use crate::reactor::contact::Report;

/// Maximum number of repairs and checks started per round; the rest follow in the next.
const BEGUN_PER_ROUND_MAX: usize = 64;
/// Maximum number of lemons drained per round.
const LEMONS_PER_ROUND_MAX: usize = 16;

/// Reported findings that the state does not have.
pub(super) fn findings(
    leader: LeadershipEpoch,
    state: &State,
    host: &Host,
    report: &Report,
) -> Option<Command> {
    if !state.has_defaults() {
        return None;
    }
    let acknowledged_up_to = state.health.acknowledged(host.id, host.incarnation);
    let reported = report.status.findings.iter();
    let findings: Vec<_> = reported
        .filter(|it| it.sequence > acknowledged_up_to)
        .cloned()
        .collect();
    (!findings.is_empty()).then_some(Command::Health(HealthCommand::Report {
        leader,
        host: host.id,
        incarnation: host.incarnation,
        findings,
    }))
}

/// Repairs and checks that a worker reports as finished. A check that passed too early is reported again
/// until its component's wait is over.
pub(super) fn ended(
    leader: LeadershipEpoch,
    state: &State,
    report: &Report,
    now: TimeMs,
) -> Vec<Command> {
    let restarts = restarts(leader, state, report);
    let reported = report.status.health_work.iter();
    let news = reported.filter(|done| {
        let condition = state.health.condition(&done.order.component);
        let is_restart = done.order.action == DeviceAction::RestartService;
        !is_restart
            && condition.is_some_and(|condition| {
                let is_early = condition.phase == Phase::Checking && now < condition.ready_at;
                condition.since == done.order.since && !(done.passed && is_early)
            })
    });
    news.map(|done| {
        let step = if done.passed {
            WorkStep::Passed
        } else {
            WorkStep::Failed
        };
        work(
            leader,
            done.order.component.clone(),
            step,
            done.order.since,
            &done.evidence,
        )
    })
    .chain(restarts)
    .collect()
}

/// Services that a worker reports as restarted, successfully or not.
fn restarts(leader: LeadershipEpoch, state: &State, report: &Report) -> Vec<Command> {
    let mut commands = Vec::new();
    for done in &report.status.health_work {
        let Component::Host(host) = done.order.component else {
            continue;
        };
        if done.order.action != DeviceAction::RestartService {
            continue;
        }
        let mut ordered = state.health.orders(host, std::iter::empty());
        if ordered.any(|order| order == done.order) {
            commands.push(Command::Health(HealthCommand::Restarted {
                leader,
                host,
                rule: done.order.rule.clone(),
                since: done.order.since,
                worked: done.passed,
                evidence: done.evidence.clone(),
            }));
        }
    }
    commands
}

/// Commands for repairs and checks that may start and for timed transitions; returns the time of the next
/// round.
#[must_use]
pub fn due(leader: LeadershipEpoch, state: &State, now: TimeMs) -> (Vec<Command>, Option<TimeMs>) {
    let due = state.health.due(now);
    let mut commands = Vec::new();
    if due.ticks {
        commands.push(Command::Health(HealthCommand::Tick { leader }));
    }
    let may_begin = due
        .work
        .into_iter()
        .filter(|component| may_begin(state, component));
    for component in may_begin.take(BEGUN_PER_ROUND_MAX) {
        let condition = state.health.condition(&component);
        let since = condition.map_or(now, |it| it.since);
        commands.push(work(
            leader,
            component,
            WorkStep::Began,
            since,
            "nothing runs there",
        ));
    }
    (commands, due.next)
}

/// Hosts that fail more often than others and may still be given work.
#[must_use]
pub fn lemons(leader: LeadershipEpoch, state: &State, now: TimeMs) -> Vec<Command> {
    if !state.health.has_records() {
        return Vec::new();
    }
    let excludes = state.excludes();
    let lemons = state
        .health
        .lemons(&state.health_rules.set, now, &excludes)
        .into_iter();
    let working = lemons.filter(|(host, _)| {
        let known = state.host(*host);
        let works = known.is_some_and(|it| it.health == HostHealth::Up && it.accepts_work());
        works && !state.health.is_refused_lemon(*host, now)
    });
    let mut candidates: Vec<(HostId, Score)> = working.collect();
    drop_accused_by_one_user(state, &mut candidates);
    let drained = candidates.into_iter().take(LEMONS_PER_ROUND_MAX);
    drained
        .map(|(host, _)| Command::Health(HealthCommand::DrainLemon { leader, host }))
        .collect()
}

/// Excludes hosts that are lemons only because of failures of one user's jobs: the user may be at fault.
fn drop_accused_by_one_user(state: &State, lemons: &mut Vec<(HostId, Score)>) {
    let least = state.health_rules.set.lemon_milli();
    let is_by_jobs = |score: &Score| score.without(Feature::SingleFailures) < least;
    let by_jobs: BTreeSet<HostId> = lemons
        .iter()
        .filter(|(_, score)| is_by_jobs(score))
        .map(|(host, _)| *host)
        .collect();
    if by_jobs.is_empty() {
        return;
    }
    let by_one = state.accused_by_one_user(&by_jobs);
    lemons.retain(|(host, _)| !by_one.contains(host));
}

/// Whether nothing runs on a component, its worker is connected, and the guard rails allow it.
fn may_begin(state: &State, component: &Component) -> bool {
    let host = match component {
        Component::Gpu(gpu) => state.gpu_hosts.get(gpu).and_then(|host| state.host(*host)),
        Component::Host(host) | Component::Nic { host, .. } => state.host(*host),
        Component::Rack(_) => None,
    };
    let Some(host) = host.filter(|host| host.health == HostHealth::Up) else {
        return false;
    };
    let is_admitted = || {
        let view = Pools::view(state, host, &Component::Host(host.id));
        state.health.rails().admit_repair(&view).is_ok()
    };
    is_idle_component(state, host.id, component)
        && (!state.health.wants_repair(component) || is_admitted())
}

fn work(
    leader: LeadershipEpoch,
    component: Component,
    step: WorkStep,
    since: TimeMs,
    evidence: &str,
) -> Command {
    Command::Health(HealthCommand::Work {
        leader,
        component,
        step,
        since,
        evidence: evidence.to_owned(),
    })
}
