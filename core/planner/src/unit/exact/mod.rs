//! Exact gang placement by bin packing: a bounded search over kinds of hosts, for gangs for which the greedy
//! search finds no room.
//!
//! Hosts with the same remaining resources are one [`Bin`] with a count; a task goes to each fitting bin in
//! turn, and every tried state is remembered by its remaining resources, so neither equal hosts nor equal
//! tasks are tried twice. A branch ends as soon as the rest is too little for the tasks of one part by
//! themselves.
//!
//! Up to [`TASKS_MAX`] tasks and [`STEPS_MAX`] steps no solution is missed. Beyond, the gang may wait
//! although there is room, but only if tasks have several sizes that do not divide each other, or if CPUs
//! or memory decide as well (`greedy` is exact for the others).

mod bin;
mod hosts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_model::command::TaskPlacement;
use muster_model::topology::Level;

use crate::capacity::Capacity;
use crate::unit::exact::bin::{Bin, Shapes};
use crate::unit::exact::hosts::Hosts;
use crate::unit::gang::{GangVariant, subgroups};
use crate::unit::greedy::{hardest_first, is_shared};
use crate::unit::request::{UnitRequest, task_of};

/// Maximum number of tasks of a gang in the search.
const TASKS_MAX: usize = 256;
/// Maximum number of steps of a search: about 20 ms.
const STEPS_MAX: usize = 4_096;

/// The unit of one step: a task, or a subgroup that shares a host.
#[derive(Clone, Copy, Debug)]
struct Item {
    part: usize,
    /// First task, within the part.
    first: u32,
    tasks: u32,
    /// The subgroup that it belongs to, and the level above hosts of the cell that the subgroup shares.
    shared: Option<(usize, Level)>,
}

/// Number of hosts by kind.
type Bins = BTreeMap<Arc<Bin>, usize>;

/// The cell chosen by the current subgroup.
type Chosen = Option<(usize, Arc<str>)>;

struct Search<'s> {
    shapes: &'s Shapes<'s>,
    items: Vec<Item>,
    seen: BTreeSet<(usize, Chosen, Bins)>,
    steps: usize,
    moves: Vec<(Arc<Bin>, Arc<Bin>)>,
}

/// Result of a search.
pub(super) enum SearchResult {
    /// Room for all.
    Room(Vec<TaskPlacement>),
    /// There is no room.
    Nothing,
    /// The search reached its bound; there may be room.
    OverBound,
}

/// Searches for room for all parts.
pub(super) fn search(
    capacity: &Capacity<'_>,
    request: &UnitRequest<'_>,
    way: &GangVariant<'_>,
) -> SearchResult {
    let Some(items) = items(capacity, request, way) else {
        return SearchResult::OverBound;
    };
    let shapes = Shapes::of(request, way);
    let mut hosts = Hosts::of(capacity, &shapes, items.len());
    let bins = hosts.bins();
    let mut search = Search {
        shapes: &shapes,
        items,
        seen: BTreeSet::new(),
        steps: 0,
        moves: Vec::new(),
    };
    if !search.place(0, None, bins) {
        return match search.steps > STEPS_MAX {
            true => SearchResult::OverBound,
            false => SearchResult::Nothing,
        };
    }
    match search.tasks(capacity, request, &mut hosts) {
        Some(tasks) => SearchResult::Room(tasks),
        None => SearchResult::Nothing,
    }
}

/// Items to place, hardest first; `None` if there are too many.
fn items(
    capacity: &Capacity<'_>,
    request: &UnitRequest<'_>,
    way: &GangVariant<'_>,
) -> Option<Vec<Item>> {
    let host_level = capacity.state().topology.host_level();
    let tasks: u64 = way.counts.iter().map(|count| u64::from(*count)).sum();
    if tasks > TASKS_MAX as u64 {
        return None;
    }
    let mut items: Vec<Item> = Vec::new();
    for part in hardest_first(request, way) {
        let of_part = &request.parts[part];
        let shared = of_part.shared.filter(|_| is_shared(of_part, way));
        let level = shared.and_then(|shared| shared.level);
        for (first, size) in subgroups(of_part, way.counts[part]) {
            if level.is_some_and(|level| level >= host_level) {
                items.push(Item {
                    part,
                    first,
                    tasks: size,
                    shared: None,
                });
                continue;
            }
            let subgroup = items.len();
            items.extend((first..first + size).map(|first| Item {
                part,
                first,
                tasks: 1,
                shared: level.map(|level| (subgroup, level)),
            }));
        }
    }
    Some(items)
}

impl Search<'_> {
    /// Places the items from a position on; returns whether all found room.
    fn place(&mut self, position: usize, chosen: Chosen, bins: Bins) -> bool {
        let Some(item) = self.items.get(position).copied() else {
            return true;
        };
        self.steps += 1;
        if self.steps > STEPS_MAX || !self.has_room(position, &bins) {
            return false;
        }
        let chosen = chosen
            .filter(|(subgroup, _)| item.shared.is_some_and(|(of_item, _)| of_item == *subgroup));
        if !self.seen.insert((position, chosen.clone(), bins.clone())) {
            return false;
        }
        for (from, to) in self.options(&item, chosen.as_ref(), &bins) {
            let cell = item.shared.and_then(|(subgroup, level)| {
                Some((subgroup, Arc::clone(from.above.get(usize::from(level.0))?)))
            });
            let mut next = bins.clone();
            move_host(&mut next, &from, &to);
            self.moves.push((from, to));
            if self.place(position + 1, cell, next) {
                return true;
            }
            self.moves.pop();
        }
        false
    }

    /// The tasks on the hosts that the moves represent, in task order.
    fn tasks(
        &self,
        capacity: &Capacity<'_>,
        request: &UnitRequest<'_>,
        hosts: &mut Hosts,
    ) -> Option<Vec<TaskPlacement>> {
        let mut tasks = Vec::new();
        for (item, (from, to)) in self.items.iter().zip(&self.moves) {
            let part = &request.parts[item.part];
            let gpus = part.group.resources.gpus as usize;
            let (host, mut positions) = hosts.take_host(from, to)?;
            let record = capacity.state().host(host)?;
            for task in 0..item.tasks {
                let others = positions.split_off(gpus.min(positions.len()));
                let own = std::mem::replace(&mut positions, others);
                tasks.push(TaskPlacement {
                    task: task_of(part, item.first + task),
                    host,
                    gpus: own
                        .into_iter()
                        .map(|position| record.gpus[position].uuid)
                        .collect(),
                });
            }
        }
        tasks.sort_unstable_by_key(|task| task.task);
        Some(tasks)
    }

    /// All placements of an item, those that leave the least first.
    fn options(
        &self,
        item: &Item,
        chosen: Option<&(usize, Arc<str>)>,
        bins: &Bins,
    ) -> Vec<(Arc<Bin>, Arc<Bin>)> {
        let lies = |bin: &Bin| match item.shared {
            None => true,
            Some((_, level)) => bin
                .above
                .get(usize::from(level.0))
                .is_some_and(|path| chosen.is_none_or(|(_, chosen)| chosen == path)),
        };
        let mut options: Vec<(Arc<Bin>, Arc<Bin>)> = bins
            .keys()
            .filter(|bin| lies(bin))
            .flat_map(|bin| {
                let left = self.shapes.place(bin, item.part, item.tasks);
                left.into_iter()
                    .map(|left| (Arc::clone(bin), Arc::new(left)))
            })
            .collect();
        options.sort_by_key(|(_, left)| left.gpus());
        options
    }

    /// Whether the remaining resources suffice for the rest of each part, considered alone.
    fn has_room(&self, position: usize, bins: &Bins) -> bool {
        let mut rest: BTreeMap<usize, u64> = BTreeMap::new();
        for item in &self.items[position..] {
            *rest.entry(item.part).or_default() += u64::from(item.tasks);
        }
        rest.into_iter().all(|(part, tasks)| {
            let fitting: u64 = bins
                .iter()
                .map(|(bin, hosts)| u64::from(self.shapes.tasks(bin, part)) * *hosts as u64)
                .sum();
            fitting >= tasks
        })
    }
}

/// Moves one host from a bin to another.
fn move_host(bins: &mut Bins, from: &Arc<Bin>, to: &Arc<Bin>) {
    if let Some(hosts) = bins.get_mut(from) {
        *hosts -= 1;
        if *hosts == 0 {
            bins.remove(from);
        }
    }
    *bins.entry(Arc::clone(to)).or_default() += 1;
}
