//! Draining by rules: running work leaves with its next checkpoint and loses nothing.

use std::collections::{BTreeMap, BTreeSet};

use muster_health::component::Condition;
use muster_model::command::{StopCause, StopReason};
use muster_model::health::{Component, Phase};
use muster_model::host::Host;
use muster_model::ids::{HostId, TaskIndex, UnitId, UnitIndex};
use muster_model::time::DAY_MS;

use crate::apply::Step;
use crate::apply::attempt::stopping::grace_ms;
use crate::apply::attempt::texts;
use crate::feasibility::{Freed, Requester};
use crate::state::{Job, Running, State, TaskRun};

/// Time that work which saves itself waits for room elsewhere: a drained component is only suspected, and the
/// work continues meanwhile. Afterwards it leaves with its next checkpoint regardless. One day: our proposal.
const ROOM_WAIT_MS: u64 = DAY_MS;

/// Resources that tasks hold on one host.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    gpus: u32,
    cpus_milli: u32,
    memory_mib: u64,
}

/// The part of a unit that is to continue elsewhere.
struct Evacuation {
    host: HostId,
    /// The only member that has to leave.
    member: Option<TaskIndex>,
    /// The rule that drains the host.
    detail: String,
}

impl Step<'_> {
    /// Moves a unit that has just saved away from draining components. Work that saves nothing is left to its
    /// end, however long that takes.
    pub(in crate::apply) fn leave_draining_components(&mut self, id: UnitId) {
        let Some(leave) = self.departure_of(id) else {
            return;
        };
        let reason = StopReason::Drain { host: leave.host };
        let cause = StopCause::new(reason, leave.detail);
        let grace_ms = grace_ms(&self.job_mut(id.job).spec, &cause.reason);
        self.order_stop_at(id, leave.member, cause, grace_ms);
    }

    /// Returns the part of a unit that is to continue elsewhere; `None` if it stays.
    fn departure_of(&self, id: UnitId) -> Option<Evacuation> {
        let state = &*self.state;
        if !state.health.has_conditions() {
            return None;
        }
        let Running { job, attempt, .. } = Running::of(state, id)?;
        let membership = attempt.membership.as_deref();
        let is_changing = membership.is_some_and(|it| it.leaving.is_some() || it.vacancy.is_some());
        if attempt.stop.is_some() || is_changing {
            return None;
        }
        let alive = attempt.tasks.iter().filter(|run| !run.phase.is_terminal());
        let drained: Vec<(&TaskRun, &Condition)> = alive
            .filter_map(|run| Some((run, draining(state, run)?)))
            .collect();
        let (first, condition) = drained.iter().min_by_key(|(_, it)| it.since)?;
        let still_waits = state.time.since(condition.since) < ROOM_WAIT_MS;
        let leaving = drained.iter().map(|(run, _)| *run);
        if still_waits && !has_room(state, job, id.unit, leaving) {
            return None;
        }
        Some(Evacuation {
            host: first.host,
            member: (drained.len() == 1).then_some(first.task),
            detail: texts::author_text(&texts::accusation(Some(condition)), ""),
        })
    }
}

/// Returns the condition by which a rule drains a task's host or one of its GPUs, the first if there are
/// several.
fn draining<'a>(state: &'a State, run: &TaskRun) -> Option<&'a Condition> {
    let gpus = run.gpus.iter().copied().map(Component::Gpu);
    let places = gpus.chain([Component::Host(run.host)]);
    let conditions = places.filter_map(|place| state.health.condition(&place));
    let draining = conditions.filter(|condition| condition.phase == Phase::Draining);
    draining.min_by_key(|condition| condition.since)
}

/// Whether there are as many hosts with room for any of the leaving tasks as there are such tasks. An
/// estimate, not a plan: constraints across tasks are ignored.
fn has_room<'a>(
    state: &State,
    job: &Job,
    unit: UnitIndex,
    leaving: impl Iterator<Item = &'a TaskRun>,
) -> bool {
    let mut by_host: BTreeMap<HostId, Held> = BTreeMap::new();
    let mut accepted: BTreeSet<&str> = BTreeSet::new();
    for run in leaving {
        let Some((group, _)) = job.spec.group_of(run.task) else {
            return false;
        };
        let held = by_host.entry(run.host).or_default();
        held.gpus += group.resources.gpus;
        held.cpus_milli += group.resources.cpus_milli;
        held.memory_mib += group.resources.memory_mib;
        let needs = &group.resources;
        let classes = state.index.free.keys().map(|class| &**class);
        // The class without a name has all hosts: it is for tasks without GPUs.
        accepted.extend(classes.filter(|class| match needs.gpus {
            0 => class.is_empty(),
            _ => !class.is_empty() && needs.accepts_model(class),
        }));
    }
    let most = by_host.values().fold(Held::default(), |most, held| Held {
        gpus: most.gpus.max(held.gpus),
        cpus_milli: most.cpus_milli.max(held.cpus_milli),
        memory_mib: most.memory_mib.max(held.memory_mib),
    });
    let requester = Requester::at(job, unit, state.time);
    let nothing = Freed::default();
    let takes = |host: &Host| {
        host.cpus_milli_free() >= most.cpus_milli
            && host.memory_mib_free() >= most.memory_mib
            && requester.name_or_probation_misfit(host).is_none()
            && requester
                .exclusivity_misfit(state, host, &nothing)
                .is_none()
    };
    let free = accepted
        .iter()
        .filter_map(|class| state.index.free.get(*class));
    let hosts = free.flat_map(|hosts| hosts.range((most.gpus, HostId(0))..));
    let hosts = hosts.filter_map(|(_, host)| state.host(*host));
    let roomy = hosts.filter(|host| takes(host)).take(by_host.len());
    roomy.count() == by_host.len()
}
