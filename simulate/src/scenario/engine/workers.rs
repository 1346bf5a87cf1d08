//! Workers' reports as a function of the state, level-triggered like the real ones.

use std::collections::BTreeMap;

use muster_engine::state::{Attempt, Job, State, Unit};
use muster_harness::{exit_with, reports as report};
use muster_model::command::{Command, TaskOutcome};
use muster_model::ids::{HostId, JobId};
use muster_model::lifecycle::TaskPhase;
use muster_model::time::TimeMs;

/// Knowledge of the workers that is not in the state: the duration of each job's work, in milliseconds.
pub(crate) type Lengths = BTreeMap<JobId, u64>;

/// Reports of all automatic workers: tasks start where they were placed, end where they were stopped, and
/// succeed when their work is done.
pub(crate) fn reports(state: &State, lengths: &Lengths, now: TimeMs) -> Vec<Command> {
    report::attempts(state)
        .flat_map(|(job, index, unit, attempt)| {
            let ends_at = ends_at(lengths, job, unit, attempt);
            let is_done = ends_at.is_some_and(|ends_at| ends_at <= now);
            report::of_attempt(state, job.id, index, attempt, |run| {
                if !report::is_reachable(state, run) {
                    return None;
                }
                match run.phase {
                    _ if attempt.stop.is_some() => report::stopped(run),
                    TaskPhase::Running => is_done.then(|| TaskOutcome::Exited(exit_with(0))),
                    _ => report::started(run),
                }
            })
        })
        .collect()
}

/// Reports that a job's tasks have started.
pub(crate) fn starts(state: &State, job: JobId) -> Vec<Command> {
    report::of_job(state, job, |attempt, run| {
        report::started(run).filter(|_| attempt.stop.is_none())
    })
}

/// Reports that the stopped tasks of a job have ended.
pub(crate) fn stops(state: &State, job: JobId) -> Vec<Command> {
    report::of_job(state, job, |attempt, run| {
        report::stopped(run).filter(|_| attempt.stop.is_some())
    })
}

/// Reports that a job's tasks (or one of them) have ended with this code.
pub(crate) fn exits(state: &State, job: JobId, task: Option<u32>, code: i32) -> Vec<Command> {
    report::of_job(state, job, |_, run| {
        let is_meant = task.is_none_or(|task| run.task.get() == task);
        is_meant.then(|| TaskOutcome::Exited(exit_with(code)))
    })
}

/// Reports that the leases of all tasks on a lost host have expired.
pub(crate) fn fences(state: &State, host: HostId) -> Vec<Command> {
    report::of_host(state, host, |_, _| Some(TaskOutcome::Fenced))
}

/// Time at which the next task completes its work.
pub(crate) fn next_end(state: &State, lengths: &Lengths) -> Option<TimeMs> {
    report::attempts(state)
        .filter(|(_, _, _, attempt)| attempt.stop.is_none())
        .filter_map(|(job, _, unit, attempt)| ends_at(lengths, job, unit, attempt))
        .min()
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
