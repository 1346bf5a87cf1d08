//! Resources of hosts available to a unit of a virtual cluster: free ones and, by preemption, those of others.

mod stoppable;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_engine::cells::{self, Price, Room, TaskRequest};
use muster_engine::feasibility::{self, Freed, Requester};
use muster_engine::rights::{Preemptor, Rights};
use muster_engine::state::{HostClass, Job, Running, State};
use muster_model::command::{AllocationBasis, TaskPlacement, Victim};
use muster_model::host::Host;
use muster_model::ids::{HostId, TaskIndex, TaskKey, UnitId, UnitIndex};
use muster_model::quota::Amounts;
use muster_model::spec::TaskGroup;
use muster_model::topology::{CellId, GpuMask, HostCells, TaskScope};

use crate::capacity::{Capacity, Masks, Need, positions, uuids};
use crate::preempt::Cost;
use crate::vc::hosts::stoppable::Memo;

/// Allocation basis of units of virtual clusters, regardless of the location of their cells.
static IN_CELLS: AllocationBasis = AllocationBasis::Cells(Vec::new());

/// The requested amounts do not matter for their rights.
static NOTHING: Amounts = Amounts {
    gpus: 0,
    gpus_by_model: BTreeMap::new(),
    cpus_milli: 0,
    memory_mib: 0,
};

/// Preemption allowed in the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum PreemptionScope {
    /// No preemption.
    None,
    /// Preempts work without guaranteed cells.
    Others,
    /// Also preempts lower priorities of the same virtual cluster.
    Priority,
    /// Also takes what lower priorities of the same virtual cluster have claimed.
    Claims,
}

/// The hosts, with what the unit took so far.
#[derive(Clone)]
pub(super) struct Hosts<'r, 'a: 'r> {
    state: &'a State,
    job: &'r Job,
    unit: UnitIndex,
    capacity: Capacity<'a>,
    scope: PreemptionScope,
    /// Units whose resources count as free for the tasks so far.
    freed: BTreeSet<UnitId>,
    /// Units that are not stopped although they may be.
    spared: Arc<BTreeSet<UnitId>>,
    /// Preemption rights of the unit.
    rights: Arc<Rights<'r>>,
    /// The only GPUs that count; `None` for all.
    only: Option<Arc<Masks>>,
    /// Cached findings about hosts, shared by all clones regardless of what they took and which units are
    /// spared.
    stoppable: Memo,
}

impl<'r, 'a> Hosts<'r, 'a> {
    pub(super) fn new(
        state: &'a State,
        capacity: &Capacity<'a>,
        job: &'r Job,
        unit: UnitIndex,
        scope: PreemptionScope,
    ) -> Self {
        let preemptor = Preemptor {
            job,
            unit,
            allocation_basis: &IN_CELLS,
            amounts: &NOTHING,
        };
        let rights = Rights::of(state, preemptor);
        Self {
            state,
            job,
            unit,
            capacity: capacity.clone(),
            scope,
            freed: BTreeSet::new(),
            spared: Arc::default(),
            rights: Arc::new(rights),
            only: None,
            stoppable: Memo::default(),
        }
    }

    /// The hosts without preempting some units.
    pub(super) fn sparing(self, spared: &Arc<BTreeSet<UnitId>>) -> Self {
        Self {
            spared: Arc::clone(spared),
            ..self
        }
    }

    /// Restricts the hosts to these GPUs.
    pub(super) fn within(&self, gpus: Vec<(HostId, GpuMask)>) -> Self {
        let masks: Masks = gpus.into_iter().collect();
        Self {
            capacity: self.capacity.within(masks.clone()),
            only: Some(Arc::new(masks)),
            ..self.clone()
        }
    }

    /// These hosts after some tasks were placed on a subset of them: `part` records the units stopped for
    /// that.
    pub(super) fn after(&self, part: &Self, pieces: &[(&TaskRequest, (HostId, GpuMask))]) -> Self {
        let mut after = self.clone();
        for stopped in &part.freed {
            let running = Running::of(self.state, *stopped);
            if let (Some(running), true) = (running, after.freed.insert(*stopped)) {
                after.capacity.free_attempt(running.as_victim());
            }
        }
        for (piece, (id, gpus)) in pieces {
            if let Some(host) = self.state.host(*id) {
                let placement = self.placement(host, piece.group, *gpus);
                after.capacity.commit(self.requester(), &[placement]);
            }
        }
        after
    }

    /// A task of a group on GPUs of a host; the task's index does not matter.
    fn placement(&self, host: &Host, group: usize, gpus: GpuMask) -> TaskPlacement {
        let before = self.job.spec.groups.iter().take(group);
        TaskPlacement {
            task: TaskIndex(before.map(|group| group.count).sum()),
            host: host.id,
            gpus: uuids(host, gpus),
        }
    }

    pub(super) fn requester(&self) -> Requester<'r> {
        self.capacity.requester(self.job, self.unit)
    }

    pub(super) fn tree(&self) -> &'a cells::CellTree {
        self.state.index.allocation.tree()
    }

    pub(super) fn cells(&self, host: HostId) -> Option<&'a HostCells> {
        self.capacity.cells(host)
    }

    /// Whether a group names the GPUs of its tasks, or a level that the GPUs of one task share.
    pub(super) fn is_particular(&self, group: usize) -> bool {
        let group = self.job.spec.groups.get(group);
        group.is_none_or(|group| !group.layout.gpus.is_empty() || group.layout.within.is_some())
    }

    /// Free GPUs of a model of a host within some cells.
    pub(super) fn free_in(&self, id: HostId, gpu_model: &HostClass, cells: &[CellId]) -> GpuMask {
        let Some(host) = self.state.host(id) else {
            return GpuMask::default();
        };
        let free = self.capacity.free_on(host, gpu_model);
        let inside = cells
            .iter()
            .flat_map(|cell| self.tree().gpus(cell))
            .filter(|(host, _)| *host == id)
            .fold(GpuMask::default(), |all, (_, gpus)| all.or(gpus));
        free.and(inside).and(self.counted(id))
    }

    /// Whether a cell has the given number of GPUs that may be taken.
    pub(super) fn may_hold(&self, cell: &CellId, gpus: u64) -> bool {
        let there = self.tree().gpus(cell).into_iter();
        let open = there.map(|(host, inside)| u64::from(self.open(host).and(inside).count()));
        open.sum::<u64>() >= gpus
    }

    fn counted(&self, host: HostId) -> GpuMask {
        match &self.only {
            Some(only) => only.get(&host).copied().unwrap_or_default(),
            None => GpuMask(u128::MAX),
        }
    }

    /// The attempts of some units as victims, ascending, without those already being stopped.
    pub(super) fn victims(&self, units: &BTreeSet<UnitId>) -> Vec<Victim> {
        let running = units
            .iter()
            .filter_map(|unit| Running::of(self.state, *unit));
        running
            .filter(|running| running.attempt.stop.is_none())
            .map(|running| running.as_victim())
            .collect()
    }

    /// Whether the unit may take what another unit has claimed.
    fn outranks(&self, claimant: UnitId) -> bool {
        self.scope == PreemptionScope::Claims
            && self.state.job(claimant.job).is_some_and(|other| {
                other.spec.queue == self.job.spec.queue
                    && other.spec.priority < self.job.spec.priority
            })
    }

    /// Outranked units that claim what the tasks get.
    pub(super) fn outranked(&self, tasks: &[TaskPlacement]) -> BTreeSet<UnitId> {
        let taken = tasks.iter().flat_map(|task| {
            let host = self.state.host(task.host);
            let all = host.into_iter().flat_map(|host| &host.gpus);
            all.filter(|gpu| task.gpus.contains(&gpu.uuid))
        });
        taken
            .filter_map(|gpu| gpu.claim)
            .filter(|claimant| self.outranks(*claimant))
            .collect()
    }

    /// Units whose attempts must end before the tasks can start; `None` if the tasks do not fit even then.
    /// These are the holders of their GPUs and, where those leave too few CPUs or too little memory, all
    /// units that the search stopped on their hosts.
    pub(super) fn in_the_way(&self, tasks: &[TaskPlacement]) -> Option<BTreeSet<UnitId>> {
        let holders: BTreeSet<UnitId> = self.holders(tasks).collect();
        if self.fits_without(tasks, &holders) {
            return Some(holders);
        }
        let hosts: BTreeSet<HostId> = tasks.iter().map(|task| task.host).collect();
        let stopped = self.freed.iter().copied().filter(|unit| {
            let attempt = self.state.attempt(*unit);
            let mut runs = attempt.into_iter().flat_map(|attempt| &attempt.tasks);
            runs.any(|run| hosts.contains(&run.host))
        });
        let all: BTreeSet<UnitId> = stopped.chain(holders).collect();
        self.fits_without(tasks, &all).then_some(all)
    }

    /// Whether the tasks fit as given without the attempts of some units and the claims of outranked ones.
    fn fits_without(&self, tasks: &[TaskPlacement], units: &BTreeSet<UnitId>) -> bool {
        let freed = Freed {
            all_attempts: false,
            attempts: units.clone(),
            claims: self.outranked(tasks),
        };
        feasibility::check(self.state, self.requester(), tasks, &freed).is_ok()
    }

    /// Units that hold GPUs of the tasks.
    fn holders(&self, tasks: &[TaskPlacement]) -> impl Iterator<Item = UnitId> {
        tasks.iter().flat_map(|task| {
            let host = self.state.host(task.host);
            let gpus = host.into_iter().flat_map(|host| &host.gpus);
            gpus.filter(|gpu| task.gpus.contains(&gpu.uuid))
                .filter_map(|gpu| gpu.holder)
                .map(|holder| holder.unit_id())
        })
    }

    /// Allocates room for a task without GPUs, where the fewest GPUs are free.
    pub(super) fn take_without_gpus(
        &mut self,
        position: usize,
        group: &TaskGroup,
    ) -> Option<HostId> {
        let class = HostClass::from("");
        let need = need(self.requester(), position, group, &class);
        let (_, host) = self.capacity.best_fit(need)?;
        self.capacity.take(host, need, 1);
        Some(host)
    }

    /// Whether a host has too few free CPUs, too little free memory or too few task slots for a task.
    fn lacks_room(&self, host: &Host, piece: &TaskRequest) -> bool {
        let group = self.job.spec.groups.get(piece.group);
        let room = self.capacity.room_of(host);
        group.is_some_and(|group| room.tasks(&group.resources, group.task_weight()) == 0)
    }

    /// Allocates room for a task on free resources.
    fn take_free(&mut self, host: &Host, offered: GpuMask, piece: &TaskRequest) -> Option<GpuMask> {
        let group = self.job.spec.groups.get(piece.group)?;
        let class = Arc::clone(&piece.gpu_model);
        let need = need(self.requester(), piece.group, group, &class);
        let named = named(host, group);
        let free = self.capacity.free_on(host, &class).and(offered).and(named);
        if free.count() < piece.gpus {
            return None;
        }
        let own = own_of(self.state, group);
        let cells = self.capacity.cells(host.id)?;
        let gpus = own
            .iter()
            .find_map(|own| cells.choose(*own, free, piece.gpus))?;
        if self.capacity.tasks_fitting(host.id, free.count(), need) == 0 {
            return None;
        }
        let placement = self.placement(host, piece.group, gpus);
        self.capacity.commit(self.requester(), &[placement]);
        Some(gpus)
    }
}

impl<'r, 'a> Hosts<'r, 'a> {
    /// The hosts without some attempts.
    fn freeing(&self, stopped: &[Victim]) -> Self {
        let mut freeing = self.clone();
        for victim in stopped {
            freeing.freed.insert(victim.unit_id());
            freeing.capacity.free_attempt(*victim);
        }
        freeing
    }

    /// Restores stopped attempts one by one, most expensive first, without which the task fits as well;
    /// `None` if all of them are needed.
    fn fewer(
        &self,
        mut stopped: Vec<Victim>,
        host: &Host,
        offered: GpuMask,
        piece: &TaskRequest,
    ) -> Option<(Self, GpuMask)> {
        let mut found = None;
        // The last stopped attempt made the room.
        for position in (0..stopped.len().saturating_sub(1)).rev() {
            let mut rest = stopped.clone();
            rest.remove(position);
            let mut trial = self.freeing(&rest);
            if let Some(gpus) = trial.take_free(host, offered, piece) {
                stopped = rest;
                found = Some((trial, gpus));
            }
        }
        found
    }
}

impl Room for Hosts<'_, '_> {
    fn open(&self, id: HostId) -> GpuMask {
        let Some(host) = self.state.host(id).filter(|host| host.accepts_work()) else {
            return GpuMask::default();
        };
        let free = self.capacity.free_on(host, "");
        let claimed = |gpus: GpuMask| {
            let own = UnitId::new(self.job.id, self.unit);
            gpus.positions()
                .filter(|position| {
                    let claim = host.gpus[*position].claim;
                    claim.is_some_and(|by| by != own && !self.outranks(by))
                })
                .fold(GpuMask::default(), |all, position| {
                    all.or(GpuMask::one(position))
                })
        };
        self.stoppable(host)
            .into_iter()
            .fold(free, |open, (_, _, gpus)| {
                open.or(gpus.without(claimed(gpus)))
            })
            .and(self.counted(id))
    }

    fn take(&mut self, id: HostId, offered: GpuMask, piece: &TaskRequest) -> Option<GpuMask> {
        let host = self.state.host(id)?;
        if let Some(gpus) = self.take_free(host, offered, piece) {
            return Some(gpus);
        }
        let mut stopped = Vec::new();
        let lacks_room = self.lacks_room(host, piece);
        for (_, victim, gpus) in self.stoppable(host) {
            let helps = lacks_room || !gpus.and(offered).is_empty();
            if !helps || self.freed.contains(&victim.unit_id()) {
                continue;
            }
            stopped.push(victim);
            let mut trial = self.freeing(&stopped);
            if let Some(gpus) = trial.take_free(host, offered, piece) {
                let (hosts, gpus) = self
                    .fewer(stopped, host, offered, piece)
                    .unwrap_or((trial, gpus));
                *self = hosts;
                return Some(gpus);
            }
        }
        None
    }

    fn price(&self, id: HostId, offered: GpuMask, gpus: u32) -> Option<Price> {
        if self.scope == PreemptionScope::None {
            return (offered.count() >= gpus).then(Price::default);
        }
        let host = self.state.host(id)?;
        let mut there = self.capacity.free_on(host, "").and(offered);
        let mut cost = Cost::default();
        for (one, _, held) in self.stoppable(host) {
            if there.count() >= gpus {
                break;
            }
            let held = held.and(offered);
            if !held.without(there).is_empty() {
                there = there.or(held);
                cost = cost.plus(one);
            }
        }
        (there.count() >= gpus).then(|| cost.price())
    }

    fn evicts(&self) -> bool {
        self.scope != PreemptionScope::None
    }

    fn oldest_on(&self, id: HostId) -> Option<TaskKey> {
        let gpus = &self.state.host(id)?.gpus;
        let holders = gpus.iter().filter_map(|gpu| gpu.holder);
        let tasks = holders.map(|holder| TaskKey {
            job: holder.job,
            task: holder.task,
        });
        tasks.min()
    }
}

fn need<'n>(
    requester: Requester<'n>,
    position: usize,
    group: &'n TaskGroup,
    class: &'n HostClass,
) -> Need<'n> {
    Need {
        requester,
        group,
        places: group.task_weight(),
        position,
        class,
        own: TaskScope::Host,
        named: None,
        few_hosts: None,
    }
}

/// The GPUs of a host that a group names; all if it names none.
fn named(host: &Host, group: &TaskGroup) -> GpuMask {
    match group.layout.gpus.as_slice() {
        [] => GpuMask(u128::MAX),
        gpus => positions(host, gpus),
    }
}

/// Levels that the GPUs of one task share, best first; the last one is required.
fn own_of(state: &State, group: &TaskGroup) -> Vec<TaskScope> {
    let topology = &state.topology;
    let within = group.layout.within.as_ref();
    let level = within.and_then(|within| topology.level(&within.level));
    let own = level.map_or(TaskScope::Host, |level| TaskScope::of(topology, level));
    match within {
        Some(within) if !within.required && own != TaskScope::Host => vec![own, TaskScope::Host],
        _ => vec![own],
    }
}
