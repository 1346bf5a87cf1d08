//! Workers' reports as a function of the state, level-triggered like the real ones.

use std::collections::BTreeMap;

use muster_engine::state::{Attempt, Job, State, TaskRun, Unit};
use muster_harness::exit_with;
use muster_model::command::{Command, Exit, HostHealth, TaskOutcome, TaskReport};
use muster_model::ids::{JobId, LeadershipEpoch, UnitIndex};
use muster_model::lifecycle::TaskPhase;
use muster_model::time::TimeMs;

/// Signal that ends a stopped task.
const TERMINATED: i32 = 15;

/// Knowledge of the workers that is not in the state: the duration of each job's work, in milliseconds.
pub(crate) type Lengths = BTreeMap<JobId, u64>;

/// Reports of all automatic workers: tasks start where they were placed, end where they were stopped, and
/// succeed when their work is done.
pub(crate) fn reports(state: &State, lengths: &Lengths, now: TimeMs) -> Vec<Command> {
    let mut reports = Vec::new();
    for (job, index, unit, attempt) in attempts(state) {
        let ends_at = ends_at(lengths, job, unit, attempt);
        for run in reachable(state, attempt) {
            let outcome = match (attempt.stop.is_some(), run.phase) {
                (true, phase) => stopped(phase),
                (false, TaskPhase::Assigned | TaskPhase::Prepared) => Some(TaskOutcome::Started),
                (false, TaskPhase::Running) => ends_at
                    .filter(|ends_at| *ends_at <= now)
                    .map(|_| TaskOutcome::Exited(exit_with(0))),
                _ => None,
            };
            let report = |outcome| {
                report(
                    state.leadership.epoch,
                    (job.id, index),
                    attempt,
                    run,
                    outcome,
                )
            };
            reports.extend(outcome.map(report));
        }
    }
    reports
}

/// Reports that a job's tasks have started.
pub(crate) fn starts(state: &State, of: JobId) -> Vec<Command> {
    reports_of(state, of, |attempt, run| {
        let starts = attempt.stop.is_none() && !run.phase.has_begun();
        starts.then_some(TaskOutcome::Started)
    })
}

/// Reports that the stopped tasks of a job have ended.
pub(crate) fn stops(state: &State, of: JobId) -> Vec<Command> {
    reports_of(state, of, |attempt, run| {
        attempt.stop.as_ref().and_then(|_| stopped(run.phase))
    })
}

/// Reports that a job's tasks (or one of them) have ended with this code.
pub(crate) fn exits(state: &State, of: JobId, task: Option<u32>, code: i32) -> Vec<Command> {
    reports_of(state, of, |_, run| {
        let meant = task.is_none_or(|task| run.task.get() == task);
        let ended = run.phase.is_terminal();
        (meant && !ended).then(|| TaskOutcome::Exited(exit_with(code)))
    })
}

/// Reports that the leases of all tasks on a lost host have expired.
pub(crate) fn fences(state: &State, host: muster_model::ids::HostId) -> Vec<Command> {
    let mut reports = Vec::new();
    for (job, index, _, attempt) in attempts(state) {
        for run in &attempt.tasks {
            if run.host == host && !run.phase.is_terminal() {
                let leader = state.leadership.epoch;
                let outcome = TaskOutcome::Fenced;
                reports.push(report(leader, (job.id, index), attempt, run, outcome));
            }
        }
    }
    reports
}

/// Time at which the next task completes its work.
pub(crate) fn next_end(state: &State, lengths: &Lengths) -> Option<TimeMs> {
    attempts(state)
        .filter(|(_, _, _, attempt)| attempt.stop.is_none())
        .filter_map(|(job, _, unit, attempt)| ends_at(lengths, job, unit, attempt))
        .min()
}

fn reports_of(
    state: &State,
    of: JobId,
    outcome: impl Fn(&Attempt, &TaskRun) -> Option<TaskOutcome>,
) -> Vec<Command> {
    let mut reports = Vec::new();
    for (job, index, _, attempt) in attempts(state).filter(|(job, ..)| job.id == of) {
        for run in &attempt.tasks {
            if let Some(outcome) = outcome(attempt, run) {
                let leader = state.leadership.epoch;
                reports.push(report(leader, (job.id, index), attempt, run, outcome));
            }
        }
    }
    reports
}

/// All attempts in order of job and unit.
pub(crate) fn attempts(state: &State) -> impl Iterator<Item = (&Job, UnitIndex, &Unit, &Attempt)> {
    state.jobs.values().flat_map(|job| {
        job.units.iter().filter_map(|(index, unit)| {
            Some((
                job.as_ref(),
                *index,
                unit.as_ref(),
                unit.attempt.as_deref()?,
            ))
        })
    })
}

/// Tasks whose workers can report.
fn reachable<'a>(state: &'a State, attempt: &'a Attempt) -> impl Iterator<Item = &'a TaskRun> {
    attempt.tasks.iter().filter(|run| {
        let host = state.host(run.host);
        host.is_some_and(|host| host.health != HostHealth::Lost)
    })
}

fn stopped(phase: TaskPhase) -> Option<TaskOutcome> {
    match phase {
        TaskPhase::Assigned | TaskPhase::Prepared => Some(TaskOutcome::Gone {
            detail: "never started".to_owned(),
        }),
        TaskPhase::Running => Some(TaskOutcome::Exited(Exit {
            code: None,
            signal: Some(TERMINATED),
            ..exit_with(0)
        })),
        TaskPhase::Exited | TaskPhase::Gone | TaskPhase::Fenced => None,
    }
}

fn report(
    leader: LeadershipEpoch,
    (job, unit): (JobId, UnitIndex),
    attempt: &Attempt,
    run: &TaskRun,
    outcome: TaskOutcome,
) -> Command {
    Command::ReportTask(TaskReport {
        leader,
        job,
        unit,
        epoch: attempt.epoch,
        task: run.task,
        outcome,
    })
}

/// Time at which an attempt completes its work: the work that remained after the newest earlier checkpoint.
fn ends_at(lengths: &Lengths, job: &Job, unit: &Unit, attempt: &Attempt) -> Option<TimeMs> {
    let length_ms = lengths.get(&job.id)?;
    let begun_at = attempt.running_at?;
    let done_ms = done_before(unit, attempt);
    Some(begun_at.after(length_ms.saturating_sub(done_ms)))
}

/// Milliseconds of work in the checkpoints of earlier attempts.
fn done_before(unit: &Unit, attempt: &Attempt) -> u64 {
    let mut done_ms = 0;
    for past in unit.past.iter().filter(|past| past.epoch < attempt.epoch) {
        let newest = unit
            .checkpoints
            .iter()
            .rfind(|checkpoint| checkpoint.epoch == past.epoch);
        if let (Some(checkpoint), Some(running_at)) = (newest, past.running_at) {
            done_ms += checkpoint.committed_at.since(running_at);
        }
    }
    done_ms
}
