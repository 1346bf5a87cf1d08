//! What the leader does because time has passed, and when something will be due.

use muster_core::command::{Command, StopReason};
use muster_core::ids::UnitIndex;
use muster_core::state::{Attempt, Job, State};
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
    for (job, unit, _, attempt) in attempts(state) {
        for (at, reason) in limits(job, attempt) {
            if at <= now {
                commands.push(stop(state, job, unit, attempt, reason));
            }
        }
    }
    commands
}

fn stop(
    state: &State,
    job: &Job,
    unit: UnitIndex,
    attempt: &Attempt,
    reason: StopReason,
) -> Command {
    Command::StopAttempt {
        leader: state.leadership.epoch,
        job: job.id,
        unit,
        epoch: attempt.epoch,
        reason,
    }
}

/// When an attempt that is not being stopped has to be, and why.
fn limits(job: &Job, attempt: &Attempt) -> Vec<(TimeMs, StopReason)> {
    if attempt.stop.is_some() {
        return Vec::new();
    }
    let scheduling = &job.spec.scheduling;
    let begun_at = attempt.running_at.unwrap_or(attempt.placed_at);
    let run_time = scheduling.run_time_ms_max;
    let assembly = scheduling
        .assembly_ms_max
        .filter(|_| attempt.running_at.is_none());
    run_time
        .map(|span_ms| (begun_at.after(span_ms), StopReason::RunTime))
        .into_iter()
        .chain(assembly.map(|span_ms| (attempt.placed_at.after(span_ms), StopReason::Assembly)))
        .collect()
}

/// Instants after `now` at which the planner or the leader may have something to do, the earliest one. Too many do
/// no harm.
pub(crate) fn next(state: &State, now: TimeMs) -> Option<TimeMs> {
    let mut instants: Vec<TimeMs> = Vec::new();
    instants.extend(state.index.expiring.iter().map(|(at, ..)| *at));
    instants.extend(state.index.delayed.iter().map(|(at, ..)| *at));
    for (job, _, _, attempt) in attempts(state) {
        instants.extend(limits(job, attempt).into_iter().map(|(at, _)| at));
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
