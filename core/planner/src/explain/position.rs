//! Where a job stands among those that wait.

use muster_engine::state::{Job, Line, State};
use serde::{Deserialize, Serialize};

use crate::order::Order;

/// Jobs that are counted ahead at most.
const COUNTED_MAX: u64 = 65_536;

/// Where a job stands among those that wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Jobs before it in its queue that compete for the same hosts.
    pub ahead_in_queue: u64,
    /// Jobs of all queues that have their turn before it in a round that places nothing.
    pub ahead: u64,
    /// Whether `ahead` is all of them; otherwise counting ended there.
    pub is_exact: bool,
}

pub(super) fn of(state: &State, job: &Job) -> Position {
    let mut order = Order::new(state);
    let mut ahead = 0;
    let mut is_exact = false;
    while let Some(turn) = order.next() {
        if turn.job == job.id {
            is_exact = true;
            break;
        }
        if ahead == COUNTED_MAX {
            break;
        }
        ahead += 1;
        order.pass(turn);
    }
    Position {
        ahead_in_queue: ahead_in_queue(state, job),
        ahead,
        is_exact,
    }
}

/// Jobs of the same queue that come first and compete for the same hosts.
fn ahead_in_queue(state: &State, job: &Job) -> u64 {
    let (line, own) = Line::of(&state.queues, job);
    let lines = state.index.waiting.iter();
    lines
        .filter(|(other, _)| other.queue == line.queue && line.shape.meets(&other.shape))
        .map(|(_, jobs)| jobs.range(..own).count() as u64)
        .sum()
}
