//! Reports of simulated workers as commands, derived from the state: level-triggered like the real ones.

use muster_engine::state::{Attempt, Job, State, TaskRun, Unit};
use muster_model::command::{Command, Exit, HostHealth, TaskOutcome, TaskReport};
use muster_model::ids::{HostId, JobId, UnitIndex};
use muster_model::lifecycle::TaskPhase;

/// The signal that asks a process to stop.
const SIGNAL_TERMINATE: i32 = 15;

/// Returns all attempts in order of job and unit.
pub fn attempts(state: &State) -> impl Iterator<Item = (&Job, UnitIndex, &Unit, &Attempt)> {
    state.jobs.values().flat_map(|job| {
        job.units.iter().filter_map(|(index, unit)| {
            let attempt = unit.attempt.as_deref()?;
            Some((job.as_ref(), *index, unit.as_ref(), attempt))
        })
    })
}

/// Reports the outcomes of an attempt's tasks that have not ended.
pub fn of_attempt(
    state: &State,
    job: JobId,
    unit: UnitIndex,
    attempt: &Attempt,
    outcome: impl Fn(&TaskRun) -> Option<TaskOutcome>,
) -> Vec<Command> {
    let live = attempt.tasks.iter().filter(|run| !run.phase.is_terminal());
    live.filter_map(|run| {
        Some(Command::ReportTask(TaskReport {
            leader: state.leadership.epoch,
            job,
            unit,
            epoch: attempt.epoch_of(run.task),
            task: run.task,
            outcome: outcome(run)?,
        }))
    })
    .collect()
}

/// Reports the outcomes of a job's tasks that have not ended, in order of unit and task.
pub fn of_job(
    state: &State,
    job: JobId,
    outcome: impl Fn(&Attempt, &TaskRun) -> Option<TaskOutcome>,
) -> Vec<Command> {
    let of_job = attempts(state).filter(|(of, ..)| of.id == job);
    of_job
        .flat_map(|(_, unit, _, attempt)| {
            of_attempt(state, job, unit, attempt, |run| outcome(attempt, run))
        })
        .collect()
}

/// Reports the outcomes of the tasks on a host that have not ended, in order of job, unit and task.
pub fn of_host(
    state: &State,
    host: HostId,
    outcome: impl Fn(&Attempt, &TaskRun) -> Option<TaskOutcome>,
) -> Vec<Command> {
    attempts(state)
        .flat_map(|(job, unit, _, attempt)| {
            of_attempt(state, job.id, unit, attempt, |run| {
                let is_here = run.host == host;
                is_here.then(|| outcome(attempt, run)).flatten()
            })
        })
        .collect()
}

/// Whether a task's worker can report.
#[must_use]
pub fn is_reachable(state: &State, run: &TaskRun) -> bool {
    let host = state.host(run.host);
    host.is_some_and(|host| host.health != HostHealth::Lost)
}

/// Outcome of a task that may start; `None` if it has begun.
#[must_use]
pub fn started(run: &TaskRun) -> Option<TaskOutcome> {
    (!run.phase.has_begun()).then_some(TaskOutcome::Started)
}

/// Outcome of a task that is being stopped; `None` if it has ended.
#[must_use]
pub fn stopped(run: &TaskRun) -> Option<TaskOutcome> {
    match run.phase {
        TaskPhase::Assigned | TaskPhase::Prepared => Some(TaskOutcome::Gone {
            detail: "never started".to_owned(),
        }),
        TaskPhase::Running => Some(TaskOutcome::Exited(terminated())),
        TaskPhase::Exited | TaskPhase::Gone | TaskPhase::Fenced => None,
    }
}

/// Exit of a process that was asked to stop.
#[must_use]
pub fn terminated() -> Exit {
    Exit {
        signal: Some(SIGNAL_TERMINATE),
        ..Exit::default()
    }
}
