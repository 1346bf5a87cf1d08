//! Position of a job in its queue.

use muster_engine::state::{Job, State, WaitingClass};
use serde::{Deserialize, Serialize};

use crate::order::Order;

/// Maximum number of jobs counted ahead.
const COUNTED_MAX: u64 = 65_536;

/// Position of a job among the waiting jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Jobs ahead of it in its queue that compete for the same hosts.
    pub ahead_in_queue: u64,
    /// Jobs of all queues whose turn comes first in a round that places nothing.
    pub ahead: u64,
    /// Whether `ahead` is exact; otherwise counting stopped there.
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

/// Jobs ahead of it in the same queue that compete for the same hosts.
fn ahead_in_queue(state: &State, job: &Job) -> u64 {
    let (class, own) = WaitingClass::of(&state.queues, job);
    let classes = state.index.waiting.iter();
    classes
        .filter(|(other, _)| other.queue == class.queue && class.shape.meets(&other.shape))
        .map(|(_, jobs)| jobs.range(..own).count() as u64)
        .sum()
}
