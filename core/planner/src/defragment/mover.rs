//! Units that may be moved.

use muster_engine::moves;
use muster_engine::state::{Job, Running};
use muster_model::quota::Defragment;

use crate::capacity::Capacity;
use crate::running::{End, Useful};

/// Maximum number of units that are ordered: the cheapest of a large cluster suffice.
const MOVERS_MAX: usize = 8_192;

/// A running unit that may be moved, and the cost of the move.
#[derive(Clone, Copy)]
pub(super) struct Mover<'a> {
    pub(super) running: Running<'a>,
    pub(super) cost_gpu_ms: u64,
}

/// All units that may be moved and hold something that a unit of another job could use.
pub(super) fn all<'a>(
    capacity: &Capacity<'_>,
    job: &Job,
    config: &Defragment,
    ending: &[(End, Running<'a>)],
) -> Vec<Mover<'a>> {
    let state = capacity.state();
    let useful = Useful::for_job(state, job);
    let movers = ending.iter().filter_map(|(_, running)| {
        // A process that cannot be killed frees nothing, and would put the next GPU out of service as well.
        let is_movable = moves::may_move(state, config, *running).is_ok()
            && useful.has(capacity, running)
            && !running.unit.has_stuck_task(state);
        is_movable.then(|| Mover {
            running: *running,
            cost_gpu_ms: moves::cost_gpu_ms(config, *running, state.time),
        })
    });
    movers.collect()
}

/// The cheapest units, in any order.
pub(super) fn cheapest(mut movers: Vec<Mover<'_>>) -> Vec<Mover<'_>> {
    if movers.len() > MOVERS_MAX {
        let by_cost = |mover: &Mover<'_>| (mover.cost_gpu_ms, mover.running.unit_id());
        movers.select_nth_unstable_by_key(MOVERS_MAX, by_cost);
        movers.truncate(MOVERS_MAX);
    }
    movers
}
