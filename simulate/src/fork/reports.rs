//! Workers' reports as commands.

use muster_engine::state::{Attempt, State, TaskRun, Unit};
use muster_model::command::{
    CheckpointCommand, CheckpointCommit, Command, Exit, HostHealth, StopReason, TaskOutcome,
    TaskReport,
};
use muster_model::ids::{AttemptEpoch, LeadershipEpoch, TaskIndex};
use muster_model::lifecycle::TaskPhase;

use crate::fork::agenda::AttemptKey;

/// The signal that asks a process to stop.
const SIGNAL_TERMINATE: i32 = 15;

/// Tasks of an attempt that a report covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// Those with a reachable worker.
    Heard,
    /// Those on lost hosts.
    Lost,
}

/// Reports that the attempt's pending tasks start.
pub(super) fn starts(state: &State, key: AttemptKey) -> Vec<Command> {
    reports(state, key, Reach::Heard, |phase| {
        (!phase.has_begun()).then_some(TaskOutcome::Started)
    })
}

/// Reports that all of an attempt's tasks succeed.
pub(super) fn ends(state: &State, key: AttemptKey) -> Vec<Command> {
    reports(state, key, Reach::Heard, |_| {
        Some(TaskOutcome::Exited(exit(Some(0), None)))
    })
}

/// Reports that an attempt's tasks stop because they were stopped.
pub(super) fn stops(state: &State, key: AttemptKey) -> Vec<Command> {
    reports(state, key, Reach::Heard, |phase| {
        Some(match phase {
            TaskPhase::Assigned | TaskPhase::Prepared => TaskOutcome::Gone {
                detail: "never started".to_owned(),
            },
            _ => TaskOutcome::Exited(exit(None, Some(SIGNAL_TERMINATE))),
        })
    })
}

/// Reports that one task stops because it was stopped while the others continue.
pub(super) fn leaves(state: &State, key: AttemptKey, task: TaskIndex) -> Vec<Command> {
    let mut commands = stops(state, key);
    commands.retain(|command| matches!(command, Command::ReportTask(told) if told.task == task));
    commands
}

/// Concludes that the tasks of an attempt on lost hosts are gone.
pub(super) fn fences(state: &State, key: AttemptKey) -> Vec<Command> {
    reports(state, key, Reach::Lost, |_| Some(TaskOutcome::Fenced))
}

/// Whether any task of an attempt still runs on a host whose worker is lost.
pub(super) fn has_lost(state: &State, attempt: &Attempt) -> bool {
    attempt
        .tasks
        .iter()
        .any(|run| !run.phase.is_terminal() && is_lost(state, run))
}

/// The checkpoint that an attempt commits when it is to be preempted: a unit that has committed one is
/// assumed to commit another, others restart from the beginning.
pub(super) fn checkpoint(state: &State, key: AttemptKey, reason: &StopReason) -> Option<Command> {
    let makes_room = matches!(
        reason,
        StopReason::Drain { .. }
            | StopReason::Preempted
            | StopReason::Moved
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

fn reports(
    state: &State,
    key: AttemptKey,
    reach: Reach,
    outcome: impl Fn(TaskPhase) -> Option<TaskOutcome>,
) -> Vec<Command> {
    let Some((_, attempt)) = current(state, key) else {
        return Vec::new();
    };
    let live = attempt.tasks.iter().filter(|run| !run.phase.is_terminal());
    let meant = live.filter(|run| is_lost(state, run) == (reach == Reach::Lost));
    let leader = state.leadership.epoch;
    meant
        .filter_map(|run| {
            let epoch = attempt.epoch_of(run.task);
            Some(report((leader, epoch), key, run, outcome(run.phase)?))
        })
        .collect()
}

fn is_lost(state: &State, run: &TaskRun) -> bool {
    let host = state.host(run.host);
    host.is_none_or(|host| host.health == HostHealth::Lost)
}

fn report(
    (leader, epoch): (LeadershipEpoch, AttemptEpoch),
    key: AttemptKey,
    run: &TaskRun,
    outcome: TaskOutcome,
) -> Command {
    Command::ReportTask(TaskReport {
        leader,
        job: key.job,
        unit: key.unit,
        epoch,
        task: run.task,
        outcome,
    })
}

fn exit(code: Option<i32>, signal: Option<i32>) -> Exit {
    Exit {
        code,
        signal,
        out_of_memory: false,
        lease_expired: false,
        start_error: None,
        ..Exit::default()
    }
}
