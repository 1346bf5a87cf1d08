//! Commands due by the passing of stamped time alone. The leader's housekeeping decides how often to look;
//! simulations look at every instant.

use muster_engine::state::{Running, State};
use muster_model::command::Command;
use muster_model::ids::{LeadershipEpoch, UnitId};
use muster_model::limits;
use muster_model::time::TimeMs;

/// Commands that are due at `time`, in order: planned blocks begin and expired ones end, then attempts that
/// reached their time limit for running or assembly are stopped.
pub fn due(leader: LeadershipEpoch, state: &State, time: TimeMs) -> impl Iterator<Item = Command> {
    let change = state.index.block_changes.get_min();
    let blocks = change.filter(|(at, ..)| *at <= time);
    let overdue = state.index.deadlines.iter();
    let stops = overdue
        .take_while(move |(at, _)| *at <= time)
        .filter_map(move |(_, id)| stop(leader, state, *id));
    blocks
        .map(|_| Command::ExpireBlocks { leader })
        .into_iter()
        .chain(stops)
}

/// Time of the next command of [`due`], which may be past.
#[must_use]
pub fn next(state: &State) -> Option<TimeMs> {
    let change = state.index.block_changes.get_min().map(|(at, ..)| *at);
    let deadline = state.index.deadlines.get_min().map(|(at, _)| *at);
    [change, deadline].into_iter().flatten().min()
}

/// Time after which the first record can be pruned; `None` if there is none.
#[must_use]
pub fn prune_after(state: &State) -> Option<TimeMs> {
    if state.index.finished.len() > limits::FINISHED_JOBS_KEPT_MAX {
        return Some(TimeMs::default());
    }
    let answer = state
        .requests
        .oldest()
        .map(|at| at.after(limits::REQUEST_KEPT_MS));
    let finished = state.index.finished.get_min();
    let job = finished.map(|(at, _)| at.after(limits::FINISHED_JOB_KEPT_MS));
    [answer, job].into_iter().flatten().min()
}

fn stop(leader: LeadershipEpoch, state: &State, id: UnitId) -> Option<Command> {
    let Running { job, attempt, .. } = Running::of(state, id)?;
    let (_, reason) = attempt.deadline(job)?;
    Some(Command::StopAttempt {
        leader,
        job: id.job,
        unit: id.unit,
        epoch: attempt.epoch,
        reason,
    })
}
