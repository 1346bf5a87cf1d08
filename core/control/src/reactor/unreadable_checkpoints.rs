//! Detection of unreadable checkpoints from the output of attempts that failed soon after their start.
//!
//! The leader concludes it and records it by a command: the log holds the conclusion, not the patterns, so a
//! build with other patterns replays it identically.

use std::collections::BTreeSet;

use muster_engine::state::{Attempt, Job, State, Unit};
use muster_model::command::{CheckpointCommand, Command, Exit, StopReason};
use muster_model::heartbeat::{TaskStatus, WorkerTaskPhase};
use muster_model::host::Host;
use muster_model::ids::{LeadershipEpoch, UnitId};
use muster_model::job::Checkpoint;
use muster_model::limits;

use crate::reactor::contact::Report;
use crate::reactor::difference::held_here;

/// Output of programs that cannot read a checkpoint; all words of an entry must occur in one line, in
/// lowercase.
const PATTERNS: [&[&str]; 6] = [
    &["checkpoint", "corrupt"],
    &["checkpoint", "damaged"],
    &["pytorchstreamreader failed"],
    &["unexpected eof"],
    &[".metadata", "no such file"],
    &[".metadata", "missing"],
];

/// Commands for the checkpoints that tasks of the report could not read.
pub(super) fn commands(
    state: &State,
    leader: LeadershipEpoch,
    host: &Host,
    report: &Report,
) -> Vec<Command> {
    let mut judged: BTreeSet<UnitId> = BTreeSet::new();
    let mut commands = Vec::new();
    for task in &report.status.tasks {
        let WorkerTaskPhase::Exited(exit) = &task.phase else {
            continue;
        };
        let Some((job, attempt, run)) = held_here(state, host, task) else {
            continue;
        };
        let unit = UnitId::new(job.id, task.unit);
        if run.phase.is_terminal() || !reports_unreadable(exit) || !judged.insert(unit) {
            continue;
        }
        let unreadable = job
            .unit(task.unit)
            .filter(|_| attempt.joined(run.task).is_none() && is_within_window(state, job, attempt))
            .and_then(|unit| restored_checkpoint(unit, attempt, task));
        commands.extend(unreadable.map(|checkpoint| {
            Command::Checkpoint(CheckpointCommand::MarkCheckpointDamaged {
                leader,
                job: job.id,
                unit: task.unit,
                reporter: attempt.epoch,
                epoch: checkpoint.epoch,
                step: checkpoint.step,
                reason: limits::shortened(&exit.evidence).to_owned(),
            })
        }));
    }
    commands
}

/// Whether a task failed on its own and its output says that it could not read its checkpoint.
fn reports_unreadable(exit: &Exit) -> bool {
    if exit.code == Some(0) || exit.lease_expired || exit.start_error.is_some() {
        return false;
    }
    let output = exit.evidence.to_lowercase();
    PATTERNS
        .iter()
        .any(|words| words.iter().all(|word| output.contains(word)))
}

/// Whether the attempt is young enough and is not being stopped.
fn is_within_window(state: &State, job: &Job, attempt: &Attempt) -> bool {
    let policy = job.spec.lifecycle.checkpoints;
    let own = policy.map(|policy| policy.restore_window_ms);
    let by_default = state
        .job_defaults
        .map(|defaults| defaults.restore_window_ms);
    let window = own.or(by_default);
    let began_at = attempt.running_at.unwrap_or(attempt.placed_at);
    let left_alone = attempt
        .stop
        .as_ref()
        .is_none_or(|stop| stop.reason == StopReason::MemberFailed);
    left_alone && window.is_some_and(|window_ms| state.time.since(began_at) <= window_ms)
}

/// The checkpoint that an attempt restored, if it has written none itself and reported none as damaged.
fn restored_checkpoint<'a>(
    unit: &'a Unit,
    attempt: &Attempt,
    task: &TaskStatus,
) -> Option<&'a Checkpoint> {
    let mut known = unit.checkpoints.iter();
    let is_settled = known.any(|checkpoint| {
        checkpoint.epoch == attempt.epoch || checkpoint.damaged_by == Some(attempt.epoch)
    });
    let newest = unit.newest_checkpoint();
    newest.filter(|_| !is_settled && task.checkpoints.is_empty())
}
