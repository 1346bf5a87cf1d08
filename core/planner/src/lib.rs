//! The planner: a pure function from the state to a set of placements, with a reason for everything that
//! it does not place.
//!
//! It may be clever, slow or wrong: `apply` re-checks every placement with the same feasibility function.

mod allowance;
mod blocker;
mod capacity;
mod change;
mod claims;
mod defragment;
mod diagnose;
mod explain;
mod instead;
mod order;
mod places;
mod potential;
mod preempt;
mod prefix;
mod reason;
mod reserve;
mod round;
mod rounds;
mod running;
mod sentence;
mod share;
mod unit;
mod vc;

pub use blocker::{
    Blocker, CellsShort, KindQuota, LimitKind, LimitReached, NamedPlace, RoomShort, TopologyShort,
};
pub use change::Change;
pub use claims::MOVES_TRIED_AGAIN_MS;
pub use explain::{
    Basis, ClassCount, Explanation, Position, Remedy, Start, blocker, explain, explain_while,
};
pub use instead::instead;
pub use reason::{Reason, WaitingByReason};

pub use capacity::positions;

use std::borrow::Cow;

use muster_engine::state::State;
use muster_model::command::{Claiming, Command, Placement};
use muster_model::ids::JobId;
use muster_model::time::TimeMs;

/// Bounds of one planning round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Steps to take at most.
    pub steps_max: usize,
    /// Jobs to examine at most.
    pub examined_max: usize,
}

impl Default for Budget {
    /// 4,096 steps and 65,536 examined jobs: about 10 ms of work.
    fn default() -> Self {
        Self {
            steps_max: 4_096,
            examined_max: 65_536,
        }
    }
}

/// The outcome of one planning round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What to do, in order of decision; each is checked again when it is applied, and those after a refused one
    /// may be refused for it.
    pub steps: Vec<Command>,
    /// Jobs that were examined and not placed whole, with the first reason for each.
    pub blocked: Vec<(JobId, Blocker)>,
    /// Waiting jobs by what keeps them, as far as the round came: a job counts once, by its next waiting unit.
    pub waiting: WaitingByReason,
    /// True if the budget ended the round before everything was examined.
    pub more: bool,
    /// True if moves were looked for and none was worth it: [`plan_in_place`] spares the same search until
    /// [`MOVES_TRIED_AGAIN_MS`] later.
    pub moves_in_vain: bool,
    /// When the passing of time alone changes what can be decided (a back-off ends, a reservation falls due), in
    /// stamped time: plan again then.
    pub again_at: Option<TimeMs>,
}

impl Plan {
    /// The placements among the steps, in order.
    pub fn placements(&self) -> impl Iterator<Item = &Placement> {
        self.steps.iter().filter_map(|step| match step {
            Command::Place(placement) => Some(placement),
            _ => None,
        })
    }

    /// The claims among the steps, in order.
    pub fn claims(&self) -> impl Iterator<Item = &Claiming> {
        self.steps.iter().filter_map(|step| match step {
            Command::Claim(claiming) => Some(claiming),
            _ => None,
        })
    }
}

/// Plans: the queues by their shares, in each the jobs by its order, each as far as there is room now.
///
/// At every level of the tree of queues the child goes next that has the smallest part of its guarantee, or if all
/// have theirs, the smallest dominant share over its weight; equal shares go by the head's priority, then its age. A
/// job that finds no room or has reached a limit lets those behind it go ahead, unless its queue says otherwise
/// (`backfill`): then it holds up those of its queue that compete for the same hosts. A job that the cluster could
/// never hold, or whose back-off is not over, holds up nobody. The units of an array are placed one by one, a gang
/// whole or not at all.
///
/// The cost follows from what is placed and how many lines wait ([`muster_engine::state::Line`]), not from the number of
/// hosts or jobs.
#[must_use]
pub fn plan(state: &State, now: TimeMs, budget: Budget) -> Plan {
    rounds::run(state, now, budget)
}

/// The same, but nobody is moved: for whoever has just found that no move is worth it. The search for moves looks at all
/// that runs, which costs many times what the rest of a round does.
#[must_use]
pub fn plan_in_place(state: &State, now: TimeMs, budget: Budget) -> Plan {
    let mut state = state.clone();
    state.defragment = None;
    plan(&state, now, budget)
}

/// Whether a round has nothing to decide: nothing waits, no gang lacks a member, and no attempt goes on outside of cells that
/// it might get back.
#[must_use]
pub fn is_idle(state: &State) -> bool {
    let nobody_lacks = state.index.waiting.is_empty() && state.index.vacant.is_empty();
    nobody_lacks && state.index.allocation.guests().next().is_none()
}

/// The state as it is at a time: stamps never go back, even where the wall clock does.
fn at(state: &State, now: TimeMs) -> Cow<'_, State> {
    if now <= state.time {
        return Cow::Borrowed(state);
    }
    let mut state = state.clone();
    state.time = now;
    Cow::Owned(state)
}
