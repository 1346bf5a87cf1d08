//! Workers' reports as commands.

use muster_engine::state::{Attempt, State, TaskRun, Unit};
use muster_harness::{exit_with, reports};
use muster_model::command::{
    CheckpointCommand, CheckpointCommit, Command, StopReason, TaskOutcome,
};
use muster_model::ids::TaskIndex;

use crate::fork::happening::AttemptKey;

/// Reports that the attempt's pending tasks start.
pub(super) fn starts(state: &State, key: AttemptKey) -> Vec<Command> {
    of_reachable(state, key, reports::started)
}

/// Reports that all of an attempt's tasks succeed.
pub(super) fn ends(state: &State, key: AttemptKey) -> Vec<Command> {
    of_reachable(state, key, |_| Some(TaskOutcome::Exited(exit_with(0))))
}

/// Reports that an attempt's tasks stop because they were stopped.
pub(super) fn stops(state: &State, key: AttemptKey) -> Vec<Command> {
    of_reachable(state, key, reports::stopped)
}

/// Reports that one task stops because it was stopped while the others continue.
pub(super) fn leaves(state: &State, key: AttemptKey, task: TaskIndex) -> Vec<Command> {
    of_reachable(state, key, |run| {
        (run.task == task).then(|| reports::stopped(run)).flatten()
    })
}

/// Concludes that the tasks of an attempt on lost hosts are gone.
pub(super) fn fences(state: &State, key: AttemptKey) -> Vec<Command> {
    of_attempt(state, key, |run| {
        (!reports::is_reachable(state, run)).then_some(TaskOutcome::Fenced)
    })
}

/// Whether any task of an attempt still runs on a host whose worker is lost.
pub(super) fn has_lost(state: &State, attempt: &Attempt) -> bool {
    attempt
        .tasks
        .iter()
        .any(|run| !run.phase.is_terminal() && !reports::is_reachable(state, run))
}

/// The checkpoint that an attempt commits when it is to be preempted: a unit that has committed one is
/// assumed to commit another, others restart from the beginning.
pub(super) fn checkpoint(state: &State, key: AttemptKey, reason: &StopReason) -> Option<Command> {
    let makes_room = matches!(
        reason,
        StopReason::Drain { .. }
            | StopReason::Preempted
            | StopReason::Defragmented
            | StopReason::Suspended
    );
    let unit = state.job(key.job)?.unit(key.unit)?;
    let is_running = unit.attempt.as_deref()?.running_at.is_some();
    let newest = unit.checkpoints.last()?;
    (makes_room && is_running).then(|| {
        Command::Checkpoint(CheckpointCommand::CommitCheckpoint {
            leader: state.leadership.epoch,
            job: key.job,
            unit: key.unit,
            checkpoint: CheckpointCommit {
                epoch: key.epoch,
                step: newest.step + 1,
                path: newest.path.clone(),
                size_bytes: newest.size_bytes,
                digest: String::new(),
                save_ms: None,
            },
        })
    })
}

/// The unit's current attempt, if it is the given one.
pub(super) fn current(state: &State, key: AttemptKey) -> Option<(&Unit, &Attempt)> {
    let unit = state.job(key.job)?.unit(key.unit)?;
    let attempt = unit.attempt.as_deref()?;
    (attempt.epoch == key.epoch).then_some((unit, attempt))
}

/// Reports of tasks whose workers can report.
fn of_reachable(
    state: &State,
    key: AttemptKey,
    outcome: impl Fn(&TaskRun) -> Option<TaskOutcome>,
) -> Vec<Command> {
    of_attempt(state, key, |run| {
        let is_reachable = reports::is_reachable(state, run);
        is_reachable.then(|| outcome(run)).flatten()
    })
}

fn of_attempt(
    state: &State,
    key: AttemptKey,
    outcome: impl Fn(&TaskRun) -> Option<TaskOutcome>,
) -> Vec<Command> {
    current(state, key).map_or_else(Vec::new, |(_, attempt)| {
        reports::of_attempt(state, key.job, key.unit, attempt, outcome)
    })
}
