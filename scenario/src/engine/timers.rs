//! What the leader does because time has passed, and when something will be due.

use muster_core::command::Command;
use muster_core::ids::{JobId, UnitIndex};
use muster_core::state::State;
use muster_core::time::TimeMs;

use crate::engine::workers::attempts;

/// Commands that are due now.
pub(crate) fn due(state: &State, now: TimeMs) -> Vec<Command> {
    let leader = state.leadership.epoch;
    let mut commands = Vec::new();
    let first_expiry = state.index.expiring.get_min().map(|(at, ..)| *at);
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

/// Instants after `now` at which the planner or the leader may have something to do, the earliest one. Too many do
/// no harm.
pub(crate) fn next(state: &State, now: TimeMs) -> Option<TimeMs> {
    let mut instants: Vec<TimeMs> = Vec::new();
    instants.extend(state.index.expiring.iter().map(|(at, ..)| *at));
    instants.extend(state.index.delayed.iter().map(|(at, ..)| *at));
    instants.extend(state.index.deadlines.iter().map(|(at, ..)| *at));
    for (job, _, _, attempt) in attempts(state) {
        if let Some(queue) = state.queues.get(job.spec.queue.as_str()) {
            let protected_ms = queue.config.protected_ms;
            instants.push(attempt.placed_at.after(protected_ms));
            instants.extend(attempt.running_at.map(|at| at.after(protected_ms)));
        }
    }
    for job in state.jobs.values().filter(|job| job.counts.waiting > 0) {
        if let Some(queue) = state.queues.get(job.spec.queue.as_str()) {
            instants.push(job.submitted_at.after(queue.config.reserve_after_ms));
        }
        let claims = job.units.values().filter_map(|unit| unit.claim.as_deref());
        instants.extend(claims.filter_map(|claim| claim.expected_at));
    }
    instants.into_iter().filter(|at| *at > now).min()
}
