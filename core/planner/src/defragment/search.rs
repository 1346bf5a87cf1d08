//! A single search for moves along an order: units are removed from the front until the waiting unit fits,
//! units that are not in its way are restored, and the rest are placed elsewhere. A unit that fits nowhere
//! else stays, and the search restarts without it.

use std::cell::Cell;
use std::cmp::Reverse;
use std::sync::Arc;

use muster_engine::feasibility::Requester;
use muster_engine::state::Job;
use muster_model::command::{Move, TaskPlacement, Victim};
use muster_model::ids::UnitIndex;
use muster_model::spec::Packing;
use muster_model::time::TimeMs;

use crate::capacity::Capacity;
use crate::defragment::mover::Mover;
use crate::in_the_way::InTheWay;
use crate::running::stops_end;
use crate::{smallest_prefix, unit};

/// Restarts of a search because a unit fits nowhere else or too many would have to move.
const TRIES_MAX: usize = 16;

/// The search gives up if the units in the way exceed the maximum number of moves by this factor: too many
/// to reduce one by one.
const HOPELESS_TIMES: usize = 2;

/// Units of an order that are examined: more than any claim moves, few enough for every round.
const LOOKED_AT_MAX: usize = 512;

/// Attempts that all searches for one unit remove hypothetically before they give up: bounds the cost of a
/// round.
pub(super) const FREED_MAX: usize = 16_384;

/// Number of units tried alone.
const ALONE_MAX: usize = 64;

/// A search along one order.
pub(super) struct Search<'s, 'a> {
    /// Resources that are free or become free anyway.
    pub(super) capacity: &'s Capacity<'a>,
    /// Job of the waiting unit.
    pub(super) job: &'s Job,
    /// The waiting unit.
    pub(super) unit: UnitIndex,
    pub(super) order: Vec<Mover<'s>>,
    pub(super) moves_max: usize,
    /// Remaining number of attempts that may be removed hypothetically.
    pub(super) left: &'s Cell<usize>,
}

/// Moves that make room.
#[derive(Clone, Debug)]
pub(super) struct Moves {
    pub(super) tasks: Vec<TaskPlacement>,
    /// The moves, ascending.
    pub(super) moves: Vec<Move>,
    pub(super) cost_gpu_ms: u64,
    /// Time at which all moved units, and others that are being stopped there, have stopped.
    pub(super) expected_at: TimeMs,
}

/// Positions in the order of the units in the way, and the placement of the waiting unit without them.
type Cleared = (Vec<usize>, Vec<TaskPlacement>);

impl Search<'_, '_> {
    pub(super) fn run(&self) -> Option<Moves> {
        let mut order: Vec<usize> = (0..self.order.len().min(LOOKED_AT_MAX)).collect();
        for _ in 0..TRIES_MAX {
            let (chosen, tasks) = self.clear(&order)?;
            let stays = if chosen.len() > self.moves_max {
                self.dearest(&chosen)
            } else {
                match self.relocate(&chosen, &tasks) {
                    Ok(moves) => return Some(self.found(&chosen, tasks, moves)),
                    Err(stays) => stays,
                }
            };
            order.retain(|one| *one != stays);
        }
        None
    }

    /// The first unit of the order that suffices alone.
    pub(super) fn run_alone(&self) -> Option<Moves> {
        (0..self.order.len().min(ALONE_MAX)).find_map(|one| {
            let tasks = self.try_without(&[one])?;
            let moves = self.relocate(&[one], &tasks).ok()?;
            Some(self.found(&[one], tasks, moves))
        })
    }

    fn named(&self, chosen: &[usize]) -> Vec<Victim> {
        let named = chosen
            .iter()
            .map(|one| self.order[*one].running.as_victim());
        named.collect()
    }

    /// Placement of the waiting unit without these units; `None` if it does not fit or the search budget is
    /// spent.
    fn try_without(&self, chosen: &[usize]) -> Option<Vec<TaskPlacement>> {
        self.spend(chosen.len())?;
        let fork = self.capacity.free_attempts(&self.named(chosen));
        self.placed_in(&fork, chosen)
    }

    /// Placement of the waiting unit once these units have stopped, in a capacity without them.
    fn placed_in(&self, fork: &Capacity<'_>, chosen: &[usize]) -> Option<Vec<TaskPlacement>> {
        let (tasks, _) = unit::place_later(fork, self.job, self.unit, self.stopped_at(chosen))?;
        Some(tasks)
    }

    /// Time at which the grace periods of some units have passed.
    fn stopped_at(&self, chosen: &[usize]) -> TimeMs {
        let movers = chosen.iter().map(|one| &self.order[*one]);
        let graces = movers.map(|mover| mover.running.job.spec.stop_grace_ms);
        self.capacity.now().after(graces.max().unwrap_or(0))
    }

    fn spend(&self, freed: usize) -> Option<()> {
        self.left.set(self.left.get().checked_sub(freed)?);
        Some(())
    }

    /// The smallest prefix of the order without which the unit fits, minus units that are not in its way or
    /// not needed.
    fn clear(&self, left: &[usize]) -> Option<Cleared> {
        // Exponential search, then bisection.
        self.spend(left.len() * 2)?;
        let (enough, mut tasks) =
            smallest_prefix::smallest(self.capacity, &self.named(left), |fork, count| {
                self.placed_in(fork, &left[..count])
            })?;
        let mut chosen = left[..enough].to_vec();
        self.keep_in_the_way(&mut chosen, &tasks);
        if chosen.len() > self.moves_max * HOPELESS_TIMES {
            return None;
        }
        self.give_back(&mut chosen, &mut tasks);
        Some((chosen, tasks))
    }

    /// Restores units that hold nothing where the waiting unit goes: neither GPUs nor, if it needs those as
    /// well, other resources of its hosts.
    fn keep_in_the_way(&self, chosen: &mut Vec<usize>, tasks: &[TaskPlacement]) {
        let in_the_way = InTheWay::of(tasks);
        let mut holders = chosen.clone();
        holders.retain(|one| in_the_way.holds_gpu(&self.order[*one].running));
        let then = self.capacity.free_attempts(&self.named(&holders));
        if then.admits_all(
            Requester::for_later(self.job, self.unit, self.stopped_at(chosen)),
            tasks,
        ) {
            *chosen = holders;
        } else {
            chosen.retain(|one| in_the_way.is_on_its_hosts(&self.order[*one].running));
        }
    }

    /// Restores units that need not move, most expensive first.
    fn give_back(&self, chosen: &mut Vec<usize>, tasks: &mut Vec<TaskPlacement>) {
        let mut dearest_first = chosen.clone();
        dearest_first.sort_by_key(|one| Reverse(self.order[*one].cost_gpu_ms));
        dearest_first.truncate(self.moves_max * 2);
        for spared in dearest_first {
            let rest: Vec<usize> = chosen
                .iter()
                .copied()
                .filter(|one| *one != spared)
                .collect();
            if rest.len() == chosen.len() {
                continue;
            }
            if let Some(found) = self.try_without(&rest) {
                *chosen = rest;
                self.keep_in_the_way(chosen, &found);
                *tasks = found;
            }
        }
    }

    fn dearest(&self, chosen: &[usize]) -> usize {
        let dearest = chosen
            .iter()
            .max_by_key(|one| self.order[**one].cost_gpu_ms);
        dearest.copied().unwrap_or_default()
    }

    /// New placements of all units in the way, or the unit that fits nowhere else. Units that are hard to
    /// place come first.
    fn relocate(&self, chosen: &[usize], tasks: &[TaskPlacement]) -> Result<Vec<Move>, usize> {
        let now = self.capacity.free_attempts(&self.named(chosen));
        let mut fork = now.at(self.stopped_at(chosen));
        fork.commit(fork.requester(self.job, self.unit), tasks);
        let mut hardest_first = chosen.to_vec();
        hardest_first.sort_by_key(|one| {
            let running = self.order[*one].running;
            let exclusive = running.job.spec.scheduling.packing == Packing::Exclusive;
            let gpus: usize = running.attempt.tasks.iter().map(|run| run.gpus.len()).sum();
            (Reverse((exclusive, gpus)), *one)
        });
        let mut moves = Vec::with_capacity(chosen.len());
        for one in hardest_first {
            let running = self.order[one].running;
            let placed =
                unit::place_unborrowed(&mut fork, running.job, running.index).map_err(|_| one)?;
            // A partial gang does not lose members by a move.
            if placed.tasks.len() < running.attempt.tasks.len() {
                return Err(one);
            }
            moves.push(Move {
                attempt: running.as_victim(),
                tasks: Arc::from(placed.tasks),
            });
        }
        moves.sort_by_key(|one| one.attempt);
        Ok(moves)
    }

    fn found(&self, chosen: &[usize], tasks: Vec<TaskPlacement>, moves: Vec<Move>) -> Moves {
        let movers = || chosen.iter().map(|one| &self.order[*one]);
        let now = self.capacity.now();
        let others_at = stops_end(self.capacity.state(), &tasks, now);
        let expected_at = self.stopped_at(chosen).max(others_at);
        Moves {
            tasks,
            moves,
            cost_gpu_ms: movers()
                .map(|mover| mover.cost_gpu_ms)
                .fold(0, u64::saturating_add),
            expected_at,
        }
    }
}
