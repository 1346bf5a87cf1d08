//! What the leader does because time has passed, and when something will be due.

use muster_engine::state::State;
use muster_model::command::Command;
use muster_model::ids::{JobId, UnitIndex};
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
    for (_, job, unit) in overdue.take_while(|(at, ..)| *at <= now) {
        commands.extend(stop(state, *job, *unit));
    }
    commands
}

/// Ends an attempt that has run or assembled for as long as it may.
fn stop(state: &State, id: JobId, unit: UnitIndex) -> Option<Command> {
    let job = state.job(id)?;
    let attempt = job.unit(unit)?.attempt.as_deref()?;
    let (_, reason) = attempt.deadline(&job.spec)?;
    Some(Command::StopAttempt {
        leader: state.leadership.epoch,
        job: id,
        unit,
        epoch: attempt.epoch,
        reason,
    })
}

/// When the next thing is due of those that the leader looks after.
pub(crate) fn next(state: &State, now: TimeMs) -> Option<TimeMs> {
    let expiring = state.index.block_changes.iter().map(|(at, ..)| *at);
    let deadlines = state.index.deadlines.iter().map(|(at, ..)| *at);
    expiring.chain(deadlines).filter(|at| *at > now).min()
}
