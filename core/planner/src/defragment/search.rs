//! One search for moves along an order: enough units are taken away from the front until the waiting one fits, whoever
//! is not in its way is given back, and the rest is put elsewhere. A unit that fits nowhere else stays, and the search
//! begins anew without it.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use muster_engine::state::Job;
use muster_model::command::{Move, TaskPlacement, Victim};
use muster_model::ids::{GpuUuid, UnitIndex};
use muster_model::spec::Packing;

use crate::capacity::Capacity;
use crate::defragment::mover::Mover;
use crate::{prefix, unit};

/// Searches that begin anew because somebody fits nowhere else, or too many would have to go.
const TRIES_MAX: usize = 16;

/// So many times as many units in the way as may be moved are too many to be brought down to that one by one.
const HOPELESS_TIMES: usize = 2;

/// Units of an order that are looked at: more than any claim moves, few enough for every round.
const LOOKED_AT_MAX: usize = 512;

/// Attempts that all searches for one unit take away in thought before they give up: it bounds what a round costs.
pub(super) const FREED_MAX: usize = 16_384;

/// Units of which each is tried alone.
const ALONE_MAX: usize = 64;

/// One search along an order.
pub(super) struct Search<'s, 'a> {
    /// What is free or comes free anyway.
    pub(super) capacity: &'s Capacity<'a>,
    /// Who wants room.
    pub(super) unit: (&'s Job, UnitIndex),
    pub(super) order: Vec<Mover<'s>>,
    pub(super) moves_max: usize,
    /// Attempts that may still be taken away in thought.
    pub(super) left: &'s Cell<usize>,
}

/// Moves that make room.
#[derive(Clone, Debug)]
pub(super) struct Found {
    pub(super) tasks: Vec<TaskPlacement>,
    /// Ascending.
    pub(super) moves: Vec<Move>,
    pub(super) cost_gpu_ms: u64,
    /// The longest grace among those who are moved.
    pub(super) grace_ms: u64,
}

/// Positions in the order of those who are in the way, and where the unit goes without them.
type Cleared = (Vec<usize>, Vec<TaskPlacement>);

impl Search<'_, '_> {
    pub(super) fn run(&self) -> Option<Found> {
        let mut order: Vec<usize> = (0..self.order.len().min(LOOKED_AT_MAX)).collect();
        for _ in 0..TRIES_MAX {
            let (chosen, tasks) = self.clear(&order)?;
            let stays = if chosen.len() > self.moves_max {
                self.dearest(&chosen)
            } else {
                match self.rehouse(&chosen, &tasks) {
                    Ok(moves) => return Some(self.found(&chosen, tasks, moves)),
                    Err(stays) => stays,
                }
            };
            order.retain(|one| *one != stays);
        }
        None
    }

    /// The first unit of the order that is enough alone.
    pub(super) fn run_alone(&self) -> Option<Found> {
        (0..self.order.len().min(ALONE_MAX)).find_map(|one| {
            let tasks = self.try_without(&[one])?;
            let moves = self.rehouse(&[one], &tasks).ok()?;
            Some(self.found(&[one], tasks, moves))
        })
    }

    fn named(&self, chosen: &[usize]) -> Vec<Victim> {
        let named = chosen.iter().map(|one| self.order[*one].running.named());
        named.collect()
    }

    /// Where the unit goes without these; none if it does not fit, or enough was tried.
    fn try_without(&self, chosen: &[usize]) -> Option<Vec<TaskPlacement>> {
        self.spend(chosen.len())?;
        let mut fork = self.capacity.free_attempts(&self.named(chosen));
        let (job, unit) = self.unit;
        Some(unit::place_unborrowed(&mut fork, job, unit).ok()?.tasks)
    }

    fn spend(&self, freed: usize) -> Option<()> {
        self.left.set(self.left.get().checked_sub(freed)?);
        Some(())
    }

    /// The smallest number of units from the front without which the unit fits, less those that are not in its way or
    /// not needed.
    fn clear(&self, left: &[usize]) -> Option<Cleared> {
        // Doubling, then halving.
        self.spend(left.len() * 2)?;
        let (job, unit) = self.unit;
        let (enough, mut tasks) = prefix::smallest(self.capacity, &self.named(left), |fork, _| {
            Some(unit::place_unborrowed(fork, job, unit).ok()?.tasks)
        })?;
        let mut chosen = left[..enough].to_vec();
        self.keep_in_the_way(&mut chosen, &tasks);
        if chosen.len() > self.moves_max * HOPELESS_TIMES {
            return None;
        }
        self.give_back(&mut chosen, &mut tasks);
        Some((chosen, tasks))
    }

    /// Gives those back that hold nothing where the unit goes.
    fn keep_in_the_way(&self, chosen: &mut Vec<usize>, tasks: &[TaskPlacement]) {
        let gpus: BTreeSet<GpuUuid> = tasks.iter().flat_map(|task| &task.gpus).copied().collect();
        chosen.retain(|one| {
            let runs = &self.order[*one].running.attempt.tasks;
            runs.iter()
                .any(|run| run.gpus.iter().any(|gpu| gpus.contains(gpu)))
        });
    }

    /// Gives back whoever is not needed, the dearest first.
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

    /// Where everybody goes who is in the way; whoever fits nowhere else, if one does not. Those who are hard to place
    /// come first.
    fn rehouse(&self, chosen: &[usize], tasks: &[TaskPlacement]) -> Result<Vec<Move>, usize> {
        let (job, unit) = self.unit;
        let mut fork = self.capacity.free_attempts(&self.named(chosen));
        fork.commit(fork.asker(job, unit), tasks);
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
                attempt: running.named(),
                tasks: Arc::from(placed.tasks),
            });
        }
        moves.sort_by_key(|one| one.attempt);
        Ok(moves)
    }

    fn found(&self, chosen: &[usize], tasks: Vec<TaskPlacement>, moves: Vec<Move>) -> Found {
        let movers = || chosen.iter().map(|one| &self.order[*one]);
        let graces = movers().map(|mover| mover.running.job.spec.stop_grace_ms);
        Found {
            tasks,
            moves,
            cost_gpu_ms: movers()
                .map(|mover| mover.cost_gpu_ms)
                .fold(0, u64::saturating_add),
            grace_ms: graces.max().unwrap_or(0),
        }
    }
}
