//! Defragmentation: selection of running units to move so that a waiting one fits in one piece.
//!
//! Runs when a unit finds no room although enough GPUs are free. The search looks for a few units without
//! which the waiting unit fits, and each of which fits elsewhere at the same time (`search`): single units,
//! and several units in several orders (`order`). The cheapest result is used if it is worth its cost. The
//! cost is the work since the newest checkpoints plus the time in which the moved GPUs are idle; the gain
//! is the additional time that the unit would wait for others to end on their own, times its GPUs.
//!
//! The result is a proposal without side effects. No unit is moved if the waiting unit or one of the moved
//! units would not fit afterwards.

mod mover;
mod order;
mod search;

use std::cell::Cell;

use muster_engine::moves;
use muster_engine::state::{Job, Running};
use muster_model::command::{Moving, TaskPlacement, Victim};
use muster_model::ids::UnitIndex;
use muster_model::quota::Defragment;
use muster_model::time::TimeMs;

use crate::capacity::Capacity;
use crate::defragment::search::{FREED_MAX, Moves, Search};
use crate::reserve;
use crate::running::{self, End};
use crate::unit::{self, Lack, Shortage};

/// Units to move with their new placement, and the placement of the waiting unit.
#[derive(Clone, Debug)]
pub(super) struct Proposal {
    pub(super) tasks: Vec<TaskPlacement>,
    pub(super) moving: Moving,
    /// GPU-milliseconds lost by the moves.
    pub(super) cost_gpu_ms: u64,
    /// Time at which the grace periods of all moved units have passed.
    pub(super) expected_at: TimeMs,
}

/// Whether a unit lacks room only because the free resources are fragmented, in other places, or on shared
/// hosts.
pub(super) fn is_in_pieces(shortage: &Shortage) -> bool {
    let enough = shortage.need_gpus > 0 && shortage.need_gpus <= shortage.free_gpus;
    let is_known = match shortage.lack {
        Lack::Gpus | Lack::Other => true,
        Lack::UnknownLevel | Lack::SearchBound => false,
    };
    enough && is_known
}

/// The cheapest worthwhile moves, given all running attempts by expected end.
pub(super) fn propose(
    capacity: &Capacity<'_>,
    job: &Job,
    unit: UnitIndex,
    ending: &[(End, Running<'_>)],
) -> Option<Proposal> {
    let state = capacity.state();
    let config = state.defragment.as_ref()?;
    let in_flight = moves::in_flight(state);
    let moves_max = config
        .moves_max
        .min(config.moves_in_flight_max.saturating_sub(in_flight));
    let mut movers = mover::all(capacity, job, config, ending);
    if moves_max == 0 || movers.is_empty() {
        return None;
    }
    let stopping: Vec<Victim> = running::stopping(state)
        .map(|running| running.as_victim())
        .collect();
    let coming = capacity.free_attempts(&stopping);
    // Resources that become free anyway suffice: no further unit has to move.
    if unit::place_unborrowed(&mut coming.clone(), job, unit).is_ok() {
        return None;
    }
    let gain = Gain::of(capacity, job, unit, ending)?;
    let cost_max = moves::cost_gpu_ms_max(config, gain.at_most());
    movers.retain(|mover| mover.cost_gpu_ms <= cost_max);
    let affordable = mover::cheapest(movers);
    let left = Cell::new(FREED_MAX);
    let search = |order| Search {
        capacity: &coming,
        job,
        unit,
        order,
        moves_max: moves_max as usize,
        left: &left,
    };
    let orders = order::all(state, job, &affordable);
    let alone = search(order::by_cost(&affordable)).run_alone();
    let found = orders
        .into_iter()
        .filter_map(|order| search(order).run())
        .chain(alone);
    let cheapest = found.min_by_key(|found| (found.cost_gpu_ms, found.moves.len()))?;
    gain.settle(config, cheapest)
}

/// Waiting time that a unit saves if others need not end first.
struct Gain {
    gpus: u64,
    otherwise_at: TimeMs,
    now: TimeMs,
}

impl Gain {
    /// `None` if the unit does not fit even without all running attempts.
    fn of(
        capacity: &Capacity<'_>,
        job: &Job,
        unit: UnitIndex,
        ending: &[(End, Running<'_>)],
    ) -> Option<Self> {
        let otherwise = reserve::propose(capacity, job, unit, ending, |_| true)?;
        Some(Self {
            gpus: gpus(&otherwise.tasks),
            otherwise_at: otherwise.likely_at,
            now: capacity.now(),
        })
    }

    /// The gain if all moved units ended at once: an upper bound.
    fn at_most(&self) -> u64 {
        self.from(self.now, self.gpus)
    }

    fn from(&self, at: TimeMs, gpus: u64) -> u64 {
        self.otherwise_at.since(at).saturating_mul(gpus)
    }

    fn settle(&self, config: &Defragment, found: Moves) -> Option<Proposal> {
        let expected_at = found.expected_at;
        let gain_gpu_ms = self.from(expected_at, gpus(&found.tasks));
        moves::is_worth(config, found.cost_gpu_ms, gain_gpu_ms).then_some(Proposal {
            tasks: found.tasks,
            moving: Moving {
                moves: found.moves,
                gain_gpu_ms,
            },
            cost_gpu_ms: found.cost_gpu_ms,
            expected_at,
        })
    }
}

fn gpus(tasks: &[TaskPlacement]) -> u64 {
    tasks.iter().map(|task| task.gpus.len() as u64).sum()
}
