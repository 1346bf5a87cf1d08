//! Placement of a unit in its virtual cluster: assigns tasks to cells, and binds cells for them.
//!
//! Bound cells with room come first, those of one host together; then cells are bound within the quota, the
//! smallest kind that holds the task; last, several smaller cells of one host. This finds room whenever the
//! GPU counts of the tasks divide each other and the cells are healthy, because the order does not matter
//! then ([`pack`]). For other sizes the tasks are first packed into the bound cells and the open quota
//! together, and the cells are bound as the packing says.
//!
//! Only a copy of the allocation is changed, which is part of the result.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use imbl::OrdMap;
use muster_model::ids::{HostId, TaskKey};
use muster_model::topology::{CellId, CellKind, GpuMask};

use crate::cells::{Allocation, Wanted, pack};

/// Maximum number of cells compared by lost work for one binding: those with the fewest GPUs in use.
const CELLS_PRICED_MAX: usize = 128;

/// Request of a unit to its virtual cluster.
#[derive(Clone, Debug)]
pub struct Request {
    /// The virtual cluster: its queue.
    pub queue: Arc<str>,
    /// The pinned cell that it must use, if any.
    pub pinned: Option<Arc<str>>,
    /// Its tasks with GPUs.
    pub tasks: Vec<TaskRequest>,
}

/// A task with GPUs.
#[derive(Clone, Debug)]
pub struct TaskRequest {
    /// Index of its group in the unit.
    pub group: usize,
    /// Its GPUs, at least one.
    pub gpus: u32,
    /// Their model.
    pub gpu_model: Arc<str>,
}

/// Resources of hosts that a unit may get. A clone is cheap: trials run on clones.
pub trait Room: Clone {
    /// Returns the GPUs that may be taken at all, including by stopping their holders.
    fn open(&self, host: HostId) -> GpuMask;
    /// Takes room for a task, with GPUs of those offered; `None` if the host has no room. GPUs without a
    /// holder go first.
    fn take(&mut self, host: HostId, offered: GpuMask, piece: &TaskRequest) -> Option<GpuMask>;
    /// Whether GPUs are taken from others: then fully used cells are bound too.
    fn evicts(&self) -> bool;
    /// Returns the minimum loss of taking `gpus` of the GPUs offered; `None` if they are too few. Zero where
    /// no work is stopped.
    fn price(&self, host: HostId, offered: GpuMask, gpus: u32) -> Option<Price>;
    /// Returns the first task, of the oldest job, that holds GPUs of a host; `None` if there is none.
    fn oldest_on(&self, host: HostId) -> Option<TaskKey>;
}

/// Lost work if GPUs are taken from others, in GPU-milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Price {
    /// Of work with a guarantee.
    pub firm: u64,
    /// Of opportunistic work.
    pub opportunistic: u64,
}

/// Result: the placement of a unit.
#[derive(Clone, Debug)]
pub struct CellPlacement<R> {
    /// Host and GPUs of every task in the request.
    pub tasks: Vec<(HostId, GpuMask)>,
    /// The cells that it holds, ascending.
    pub cells: Vec<CellId>,
    /// The allocation with these cells bound.
    pub allocation: Allocation,
    /// The remaining room of the hosts.
    pub room: R,
}

/// Places a unit; `None` if the virtual cluster has no room that the hosts can give.
#[must_use]
pub fn serve<R: Room>(
    allocation: &Allocation,
    request: &Request,
    room: &R,
) -> Option<CellPlacement<R>> {
    let mut order: Vec<usize> = (0..request.tasks.len()).collect();
    order.sort_by_key(|task| Reverse(request.tasks[*task].gpus));
    let mut serving = Serving::new(allocation, request, room);
    if let Some(served) = serving.one_by_one(&order) {
        return Some(served);
    }
    let sizes: Vec<u32> = order.iter().map(|task| request.tasks[*task].gpus).collect();
    if pack::divides_downwards(&sizes) {
        return None;
    }
    Serving::new(allocation, request, room).as_packed(&order)
}

/// A bin for tasks before cells are bound: a host with room, or one host's share of an owed cell.
#[derive(Clone, Debug)]
enum Bin {
    Host(HostId),
    Owed { cell: usize, kind: CellKind },
}

struct Serving<'a, R> {
    request: &'a Request,
    room: R,
    /// Includes the cells bound so far.
    allocation: Allocation,
    /// GPUs in bound cells that may be taken, by host.
    offered: OrdMap<HostId, GpuMask>,
    /// Placements by position of the task in the request.
    placed: OrdMap<usize, (HostId, GpuMask)>,
    /// Newly bound cells.
    new_cells: OrdMap<CellId, ()>,
}

impl<'a, R: Room> Serving<'a, R> {
    fn new(allocation: &'a Allocation, request: &'a Request, room: &R) -> Self {
        let mut serving = Self {
            request,
            room: room.clone(),
            allocation: allocation.clone(),
            offered: OrdMap::new(),
            placed: OrdMap::new(),
            new_cells: OrdMap::new(),
        };
        for cell in allocation.bound_with_room(&request.queue, room.evicts()) {
            let pinned = allocation
                .bound(&cell)
                .and_then(|bound| bound.pinned.clone());
            if pinned == request.pinned {
                serving.offer(&cell);
            }
        }
        serving
    }

    /// Offers the GPUs of a bound cell.
    fn offer(&mut self, cell: &CellId) {
        for (host, gpus) in self.allocation.tree().gpus(cell) {
            let open = self.room.open(host).and(gpus);
            if !open.is_empty() {
                let offered = self.offered.entry(host).or_default();
                *offered = offered.or(open);
            }
        }
    }

    fn one_by_one(&mut self, order: &[usize]) -> Option<CellPlacement<R>> {
        for task in order {
            if !self.place_in_bound_cells(*task)
                && !self.place_in_new_cell(*task)
                && !self.place_across_cells(*task)
            {
                return None;
            }
        }
        self.finish()
    }

    /// Places a task on the host with the least sufficient room in bound cells; if GPUs are taken from
    /// others, on the host that loses the least.
    ///
    /// Ties are broken by the oldest work, not by the lowest host number: the physical cells of a virtual
    /// cluster depend on the other clusters, and its decisions should equal those of a cluster of its own.
    fn place_in_bound_cells(&mut self, task: usize) -> bool {
        let piece = &self.request.tasks[task];
        let mut hosts: Vec<(Price, u32, HostId)> = self
            .offered
            .iter()
            .filter(|(_, gpus)| gpus.count() >= piece.gpus)
            .filter_map(|(host, gpus)| {
                let price = self.room.price(*host, *gpus, piece.gpus)?;
                Some((price, gpus.count(), *host))
            })
            .collect();
        hosts.sort_unstable();
        let are_alike = |one: &(Price, u32, HostId), other: &(Price, u32, HostId)| {
            (one.0, one.1) == (other.0, other.1)
        };
        hosts.chunk_by(are_alike).any(|alike| {
            let mut alike: Vec<HostId> = alike.iter().map(|(_, _, host)| *host).collect();
            alike.sort_by_cached_key(|host| {
                let oldest = self.room.oldest_on(*host);
                (oldest.is_none(), oldest, *host)
            });
            alike.into_iter().any(|host| self.place(task, host))
        })
    }

    /// Places a task on a host, if it has room in bound cells.
    fn place(&mut self, task: usize, host: HostId) -> bool {
        let piece = &self.request.tasks[task];
        let offered = self.offered.get(&host).copied().unwrap_or_default();
        let tree = self.allocation.tree();
        let offered = offered.and(tree.of_model(host, &piece.gpu_model));
        let Some(gpus) = self.room.take(host, offered, piece) else {
            return false;
        };
        let left = self.offered.get(&host).copied().unwrap_or_default();
        match left.without(gpus) {
            GpuMask(0) => self.offered.remove(&host),
            left => self.offered.insert(host, left),
        };
        self.placed.insert(task, (host, gpus));
        true
    }

    /// Returns the kinds of which the virtual cluster is owed cells, smallest first.
    fn owed(&self, gpu_model: &str) -> Vec<(CellKind, u32)> {
        if self.request.pinned.is_some() {
            return Vec::new();
        }
        let quotas = self.allocation.quotas(&self.request.queue);
        let mut owed: Vec<(CellKind, u32)> = quotas
            .filter(|(kind, quota)| *kind.gpu_model == *gpu_model && quota.owed() > 0)
            .map(|(kind, quota)| (kind.clone(), quota.owed()))
            .collect();
        owed.sort_by_key(|(kind, _)| (kind.gpus, Reverse(kind.level)));
        owed
    }

    /// Binds a cell that holds a task, trying the smallest kind first, and places the task there.
    fn place_in_new_cell(&mut self, task: usize) -> bool {
        let piece = &self.request.tasks[task];
        let kinds = self.owed(&piece.gpu_model);
        kinds
            .into_iter()
            .filter(|(kind, _)| kind.gpus >= piece.gpus)
            .any(|(kind, _)| self.bind_for(&kind, &[task]))
    }

    /// Binds a cell of a kind and places tasks in it.
    fn bind_for(&mut self, kind: &CellKind, tasks: &[usize]) -> bool {
        let gpus: u32 = tasks
            .iter()
            .map(|task| self.request.tasks[*task].gpus)
            .sum();
        let wanted = Wanted {
            kind,
            healthy_gpus: gpus,
            free_gpus: if self.room.evicts() { 0 } else { gpus },
        };
        let place_into = |cell: &CellId| {
            let mut trial = self.with_bound(cell)?;
            let hosts: Vec<HostId> = trial.hosts_of(cell);
            tasks
                .iter()
                .all(|task| hosts.iter().any(|host| trial.place(*task, *host)))
                .then_some(trial)
        };
        let by_price = match self.room.evicts() {
            true => self.by_price(wanted, gpus),
            false => Vec::new(),
        };
        let mut by_price = by_price.iter();
        let cheapest = by_price.find_map(|(_, cell)| place_into(cell));
        match cheapest.or_else(|| self.allocation.choose(wanted, place_into)) {
            Some(trial) => {
                *self = trial;
                true
            }
            None => false,
        }
    }

    /// Returns the cells that may be bound, least loss first, and among equals best first: all cells up to
    /// the first one that costs nothing, at most [`CELLS_PRICED_MAX`].
    fn by_price(&self, wanted: Wanted<'_>, gpus: u32) -> Vec<(Price, CellId)> {
        let mut cells: Vec<(Price, CellId)> = Vec::new();
        self.allocation.visit(wanted, |cell| {
            let Some(price) = self.price_of(cell, gpus) else {
                return ControlFlow::Continue(());
            };
            cells.push((price, cell.clone()));
            if price == Price::default() || cells.len() == CELLS_PRICED_MAX {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        // The sort is stable: equal prices stay in the order of the visit.
        cells.sort_by_key(|(price, _)| *price);
        cells
    }

    /// Returns the minimum loss of taking `gpus` of a cell; `None` if they are too few.
    fn price_of(&self, cell: &CellId, gpus: u32) -> Option<Price> {
        let inside = self.allocation.tree().gpus(cell);
        let open = inside.iter().map(|(host, gpus)| {
            let open = self.room.open(*host).and(*gpus);
            (*host, open)
        });
        let open: Vec<(HostId, GpuMask)> = open.collect();
        if open.iter().map(|(_, gpus)| gpus.count()).sum::<u32>() < gpus {
            return None;
        }
        // Tasks for several hosts take from all of them; the GPUs are chosen when the tasks are placed.
        let at_once = open
            .iter()
            .filter_map(|(host, open)| self.room.price(*host, *open, gpus));
        at_once.min().or(Some(Price::default()))
    }

    fn hosts_of(&self, cell: &CellId) -> Vec<HostId> {
        let gpus = self.allocation.tree().gpus(cell);
        let mut hosts: Vec<(u32, HostId)> = gpus
            .into_iter()
            .map(|(host, _)| (self.offered.get(&host).map_or(0, |gpus| gpus.count()), host))
            .collect();
        hosts.sort_unstable();
        hosts.into_iter().map(|(_, host)| host).collect()
    }

    /// Returns a copy with the cell bound, if that is allowed.
    fn with_bound(&self, cell: &CellId) -> Option<Self> {
        let mut trial = Self {
            request: self.request,
            room: self.room.clone(),
            allocation: self.allocation.clone(),
            offered: self.offered.clone(),
            placed: self.placed.clone(),
            new_cells: self.new_cells.clone(),
        };
        trial
            .allocation
            .bind_safely(&self.request.queue, cell)
            .ok()?;
        trial.new_cells.insert(cell.clone(), ());
        trial.offer(cell);
        Some(trial)
    }

    /// Binds several cells of one host for a task that none of them holds alone.
    fn place_across_cells(&mut self, task: usize) -> bool {
        let gpus = self.request.tasks[task].gpus;
        let kinds = self.owed(&self.request.tasks[task].gpu_model);
        let host_level = self.allocation.tree().topology().host_level();
        for (kind, _) in kinds.into_iter().rev() {
            if kind.gpus >= gpus || kind.level <= host_level {
                continue;
            }
            let wanted = Wanted {
                kind: &kind,
                healthy_gpus: 1,
                free_gpus: u32::from(!self.room.evicts()),
            };
            let allocation = self.allocation.clone();
            let found = allocation.choose(wanted, |cell| {
                let mut trial = self.with_bound(cell)?;
                let host = trial.hosts_of(cell).first().copied()?;
                trial.fill(host, task).then_some(trial)
            });
            if let Some(trial) = found {
                *self = trial;
                return true;
            }
        }
        false
    }

    /// Binds cells of a host until a task fits there.
    fn fill(&mut self, host: HostId, task: usize) -> bool {
        while !self.place(task, host) {
            let kinds = self.owed(&self.request.tasks[task].gpu_model);
            let more = kinds.into_iter().rev().find_map(|(kind, _)| {
                let cells = self.allocation.tree().cells_inside(host, &kind);
                cells.into_iter().find_map(|cell| {
                    let gains = !self.allocation.tree().load(&cell).is_full(&kind);
                    let bound = self.allocation.bound(&cell).is_some();
                    let open = gains || self.room.evicts();
                    (open && !bound).then(|| self.with_bound(&cell)).flatten()
                })
            });
            match more {
                Some(trial) => *self = trial,
                None => return false,
            }
        }
        true
    }

    /// Packs all tasks into bound cells and open quota, then binds the cells used by the packing.
    fn as_packed(&mut self, order: &[usize]) -> Option<CellPlacement<R>> {
        let mut models: Vec<Arc<str>> = Vec::new();
        for piece in &self.request.tasks {
            if !models.contains(&piece.gpu_model) {
                models.push(Arc::clone(&piece.gpu_model));
            }
        }
        for model in models {
            let of_model = |task: &&usize| self.request.tasks[**task].gpu_model == model;
            let tasks: Vec<usize> = order.iter().filter(of_model).copied().collect();
            self.pack_model(&model, &tasks)?;
        }
        self.finish()
    }

    fn pack_model(&mut self, model: &str, tasks: &[usize]) -> Option<()> {
        let (bins, free): (Vec<Bin>, Vec<u32>) = self.bins(model, tasks.len()).into_iter().unzip();
        let sizes: Vec<u32> = tasks
            .iter()
            .map(|task| self.request.tasks[*task].gpus)
            .collect();
        let packed = pack::pack(&sizes, &free)?;
        let mut by_cell: BTreeMap<usize, (CellKind, Vec<usize>)> = BTreeMap::new();
        for (task, bin) in tasks.iter().zip(packed) {
            match &bins[bin] {
                Bin::Host(host) => {
                    if !self.place(*task, *host) {
                        return None;
                    }
                }
                Bin::Owed { cell, kind } => {
                    let entry = by_cell.entry(*cell);
                    let (_, tasks) = entry.or_insert_with(|| (kind.clone(), Vec::new()));
                    tasks.push(*task);
                }
            }
        }
        for (kind, tasks) in by_cell.into_values() {
            if !self.bind_for(&kind, &tasks) {
                return None;
            }
        }
        Some(())
    }

    /// Returns hosts with room in bound cells, and hosts of owed cells, at most as many of a kind as there
    /// are tasks.
    fn bins(&self, model: &str, tasks: usize) -> Vec<(Bin, u32)> {
        let tree = self.allocation.tree();
        let mut bins: Vec<(Bin, u32)> = Vec::new();
        for (host, gpus) in &self.offered {
            let gpus = gpus.and(tree.of_model(*host, model)).count();
            bins.push((Bin::Host(*host), gpus));
        }
        let mut cell = 0;
        for (kind, count) in self.owed(model) {
            for _ in 0..(count as usize).min(tasks) {
                for gpus in tree.host_sizes(&kind) {
                    let kind = kind.clone();
                    bins.push((Bin::Owed { cell, kind }, gpus));
                }
                cell += 1;
            }
        }
        bins
    }

    /// Builds the result: cells that no task uses are released again.
    fn finish(&mut self) -> Option<CellPlacement<R>> {
        let tasks: Vec<(HostId, GpuMask)> = self.placed.values().copied().collect();
        if tasks.len() < self.request.tasks.len() {
            return None;
        }
        let mut cells: Vec<CellId> = Vec::new();
        for (host, gpus) in &tasks {
            for position in gpus.positions() {
                let (cell, _) = self.allocation.bound_around(*host, position)?;
                cells.push(cell);
            }
        }
        cells.sort_unstable();
        cells.dedup();
        let mut allocation = self.allocation.clone();
        for cell in self.new_cells.keys() {
            if cells.binary_search(cell).is_err() {
                allocation.release(&self.request.queue, cell);
            }
        }
        for cell in &cells {
            if !self.new_cells.contains_key(cell) {
                allocation.bind(&self.request.queue, cell).ok()?;
            }
        }
        Some(CellPlacement {
            tasks,
            cells,
            allocation,
            room: self.room.clone(),
        })
    }
}
