//! Placement planner: a pure function from the cluster state to placements and preemptions, with a reason
//! for every job that keeps waiting.
//!
//! One plan works as follows:
//! 1. `rounds` runs scheduling rounds until nothing more can be decided. Each `round` gives the waiting
//!    jobs their turns in the order of fair shares (`order`, `share`) and checks limits (`allowance`).
//! 2. In its turn, a unit is placed by best fit on the free resources (`unit`, `capacity`) or, in a
//!    virtual cluster, in guaranteed cells (`vc`).
//! 3. A unit that finds no room may claim it (`claims`): by preemption (`preempt`), by moving others
//!    (`defragment`), or by a reservation for later (`reserve`), around which others are backfilled.
//! 4. A unit that still waits gets its [`Blocker`] (`diagnose`). [`explain()`] adds remedies
//!    and an expected start on request.
//!
//! The planner may be clever, slow or wrong: `apply` re-checks every placement with the same feasibility
//! function.
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

mod allowance;
mod blocker;
mod capacity;
mod change;
mod claims;
mod defragment;
mod diagnose;
mod explain;
mod feasibility;
mod in_the_way;
mod order;
mod placement_classes;
mod preempt;
mod reason;
mod reserve;
mod round;
mod rounds;
mod running;
mod sentence;
mod share;
mod smallest_prefix;
mod suggestions;
mod unit;
mod vc;

pub use blocker::{
    Blocker, CellsShortage, KindQuota, LimitKind, LimitReached, RoomShortage, TopologyShortage,
    UnfitTarget,
};
pub use change::Change;
pub use claims::MOVES_TRIED_AGAIN_MS;
pub use explain::{
    Basis, ClassCount, Explanation, Position, Remedy, Start, blocker, explain, explain_while,
};
pub use reason::{Reason, WaitingByReason};
pub use suggestions::suggestions;

pub use capacity::positions;

use std::borrow::Cow;

use muster_engine::state::State;
use muster_model::command::{ClaimSpec, Command, Placement};
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
    /// Steps in order of decision; each is checked again when applied, and a refused step may cause later
    /// ones to be refused.
    pub steps: Vec<Command>,
    /// Jobs that were examined and not placed whole, with the first reason for each.
    pub blocked: Vec<(JobId, Blocker)>,
    /// Waiting jobs by reason, as far as the round got: a job counts once, by its next waiting unit.
    pub waiting: WaitingByReason,
    /// True if the budget ended the round before everything was examined.
    pub more: bool,
    /// True if moves were searched and none was worth its cost: [`plan_in_place`] then skips the search
    /// until [`MOVES_TRIED_AGAIN_MS`] later.
    pub moves_not_worthwhile: bool,
    /// Time, in stamped time, at which the passing of time alone changes the decisions (a back-off ends, a
    /// reservation falls due): plan again then.
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
    pub fn claims(&self) -> impl Iterator<Item = &ClaimSpec> {
        self.steps.iter().filter_map(|step| match step {
            Command::Claim(claiming) => Some(claiming),
            _ => None,
        })
    }
}

/// Plans one round: queues in the order of their shares, jobs in the order of their queue, each as far as
/// there is room now.
///
/// At every level of the queue tree, the child with the smallest part of its guarantee goes next or, if all
/// guarantees are met, the one with the smallest dominant share over its weight; ties go by the head's
/// priority, then its age. A job that finds no room or has reached a limit lets those behind it go ahead
/// unless its queue disables backfill (`backfill`): then it holds up the jobs of its queue that compete for
/// the same hosts. A job that the cluster could never hold, or whose back-off is not over, holds up no
/// other job. The units of an array are placed one by one, a gang all or nothing.
///
/// The cost depends on the number of placements and waiting classes
/// ([`WaitingClass`](muster_engine::state::WaitingClass)), not on the number of hosts or jobs.
#[must_use]
pub fn plan(state: &State, now: TimeMs, budget: Budget) -> Plan {
    rounds::run(state, now, budget)
}

/// Like [`plan`], without moves: for a caller that has just found that no move is worth its cost. The
/// search for moves examines all running attempts, which costs many times the rest of a round.
#[must_use]
pub fn plan_in_place(state: &State, now: TimeMs, budget: Budget) -> Plan {
    let mut state = state.clone();
    state.defragment = None;
    plan(&state, now, budget)
}

/// Whether a round has nothing to decide: nothing waits, no gang has a vacancy, and no attempt runs outside
/// cells that it might get back.
#[must_use]
pub fn is_idle(state: &State) -> bool {
    let nothing_waits = state.index.waiting.is_empty() && state.index.vacant.is_empty();
    nothing_waits && state.index.allocation.guests().next().is_none()
}

/// The state at a given time: stamps never decrease, even if the wall clock does.
fn at(state: &State, now: TimeMs) -> Cow<'_, State> {
    if now <= state.time {
        return Cow::Borrowed(state);
    }
    let mut state = state.clone();
    state.time = now;
    Cow::Owned(state)
}
