//! Timers of the leader: actions due to the passing of time, and the next due time.

use muster_engine::state::{Running, State};
use muster_model::command::Command;
use muster_model::ids::UnitId;
use muster_model::time::TimeMs;

/// Commands that are due now.
pub(crate) fn due(state: &State, now: TimeMs) -> Vec<Command> {
    let leader = state.leadership.epoch;
    let mut commands = Vec::new();
    let first_expiry = state.index.block_changes.get_min().map(|(at, ..)| *at);
    if first_expiry.is_some_and(|at| at <= now) {
        commands.push(Command::ExpireBlocks { leader });
    }
    let overdue = state.index.deadlines.iter();
    for (_, id) in overdue.take_while(|(at, ..)| *at <= now) {
        commands.extend(stop(state, *id));
    }
    commands
}

/// Stop command for an attempt that exceeded its limit for running or assembling.
fn stop(state: &State, id: UnitId) -> Option<Command> {
    let Running { job, attempt, .. } = Running::of(state, id)?;
    let (_, reason) = attempt.deadline(&job.spec)?;
    Some(Command::StopAttempt {
        leader: state.leadership.epoch,
        job: id.job,
        unit: id.unit,
        epoch: attempt.epoch,
        reason,
    })
}

/// Time of the leader's next due action.
pub(crate) fn next(state: &State, now: TimeMs) -> Option<TimeMs> {
    let expiring = state.index.block_changes.iter().map(|(at, ..)| *at);
    let deadlines = state.index.deadlines.iter().map(|(at, ..)| *at);
    expiring.chain(deadlines).filter(|at| *at > now).min()
}
