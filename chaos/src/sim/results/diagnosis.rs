//! Diagnosis of a world that does not become idle: the view of every component on each job that does not
//! end.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use muster_control::agent::Agent;
use muster_engine::state::{Attempt, Job, State, TaskRun};
use muster_model::host::Host;
use muster_model::ids::{HostId, TaskKey};
use muster_planner::blocker;

use crate::sim::host::SimHost;
use crate::sim::world::World;

/// Maximum number of jobs described; the others are counted.
const JOBS_DESCRIBED_MAX: usize = 5;

/// Describes the jobs that have not ended, with the view of the replicated state, the agent and the
/// supervisors of its host on each task.
#[must_use]
pub fn describe_stuck(world: &World) -> String {
    let mut text = format!(
        "{} processes run",
        world.checkers.with(|seen| seen.gpu_ledger.running())
    );
    let mut newest: Option<State> = None;
    for (node, handle) in world.replicas.registry.up() {
        let state = handle.fork();
        let leadership = handle.leadership().borrow().clone();
        let role = if leadership.is_self { ", leads" } else { "" };
        line(
            &mut text,
            &format!(
                "replica {} at revision {} of leadership {} (term {}{role})",
                node.0, state.revision, state.leadership.epoch, leadership.term
            ),
        );
        if newest
            .as_ref()
            .is_none_or(|newest| newest.revision < state.revision)
        {
            newest = Some(state);
        }
    }
    if let Some(state) = newest {
        describe_jobs(&state, &world.hosts, &mut text);
    }
    text
}

fn describe_jobs(state: &State, machines: &[SimHost], text: &mut String) {
    let live: Vec<&Job> = state
        .jobs
        .values()
        .map(AsRef::as_ref)
        .filter(|job| !job.phase.is_terminal())
        .collect();
    let mut hosts = BTreeSet::new();
    for job in live.iter().take(JOBS_DESCRIBED_MAX) {
        describe_job(state, machines, job, text);
        hosts.extend(attempts(job).flat_map(Attempt::hosts));
    }
    if live.len() > JOBS_DESCRIBED_MAX {
        let rest = live.len() - JOBS_DESCRIBED_MAX;
        line(text, &format!("and {rest} jobs more"));
    }
    for id in hosts {
        if let Some(host) = state.host(id) {
            describe_host(host, machine_of(state, machines, id), text);
        }
    }
}

fn attempts(job: &Job) -> impl Iterator<Item = &Attempt> {
    job.units
        .values()
        .filter_map(|unit| unit.attempt.as_deref())
}

fn describe_job(state: &State, machines: &[SimHost], job: &Job, text: &mut String) {
    let blocker = blocker(state, job.id, state.time);
    let blocker = blocker.map_or_else(String::new, |blocker| format!(", waiting for {blocker:?}"));
    line(text, &format!("job {} {:?}{blocker}", job.id, job.phase));
    for (index, unit) in &job.units {
        for past in unit.past.iter().filter(|_| !unit.phase.is_terminal()) {
            let attribution = past.attribution.as_deref();
            let attribution =
                attribution.map_or_else(String::new, |attribution| format!("; {attribution}"));
            let ran = past.running_at.map(|at| past.ended_at.since(at));
            let (number, at, detail) = (past.number, past.ended_at, &past.detail);
            line(
                text,
                &format!(
                    "  unit {index} attempt {number} ended {at}, ran {ran:?} ms: {detail}{attribution}"
                ),
            );
        }
        let Some(attempt) = unit.attempt.as_deref() else {
            continue;
        };
        let stop = attempt.stop.as_ref().map(|order| &order.reason);
        line(
            text,
            &format!(
                "  unit {index} {:?}, attempt {} of epoch {} placed by leadership {}, stop {stop:?}",
                unit.phase, attempt.number, attempt.epoch, attempt.leader
            ),
        );
        for run in attempt.tasks.iter().filter(|run| !run.phase.is_terminal()) {
            let machine = machine_of(state, machines, run.host);
            let key = TaskKey {
                job: job.id,
                task: run.task,
            };
            describe_task(run, key, machine, text);
        }
    }
}

fn describe_task(run: &TaskRun, key: TaskKey, machine: Option<&SimHost>, text: &mut String) {
    let (held, supervised) = machine.map_or((None, Vec::new()), |machine| {
        let held = machine
            .agent()
            .tasks()
            .get(&key)
            .map(|task| (task.epoch(), task.phase.clone()));
        let found = machine.supervisors().found().into_iter();
        let supervised: Vec<_> = found
            .filter(|found| found.key == key)
            .map(|found| (found.epoch, found.phase))
            .collect();
        (held, supervised)
    });
    line(
        text,
        &format!(
            "    task {} {:?} on host {}; its agent holds {held:?}; supervisors {supervised:?}",
            run.task, run.phase, run.host
        ),
    );
}

fn describe_host(host: &Host, machine: Option<&SimHost>, text: &mut String) {
    let agent = machine.map_or_else(
        || "not a machine of this world".to_owned(),
        |machine| describe_agent(&machine.agent(), machine),
    );
    line(
        text,
        &format!(
            "host {} {} is {:?}, incarnation {}, desired since revision {}; {agent}",
            host.id, host.name, host.health, host.incarnation, host.desired_revision
        ),
    );
}

fn describe_agent(agent: &Agent, machine: &SimHost) -> String {
    let link = machine.link();
    format!(
        "its agent follows leadership {}, works on revision {}, holds {} tasks, contact {:?}, {:?}, now {:?}",
        agent.leader(),
        agent.desired_revision(),
        agent.tasks().len(),
        agent.contact(),
        link,
        machine.now(),
    )
}

fn machine_of<'a>(state: &State, machines: &'a [SimHost], host: HostId) -> Option<&'a SimHost> {
    let name = &state.host(host)?.name;
    machines.iter().find(|machine| machine.name() == **name)
}

fn line(text: &mut String, what: &str) {
    // Writing to a string cannot fail.
    let _infallible = write!(text, "\n        {what}");
}
