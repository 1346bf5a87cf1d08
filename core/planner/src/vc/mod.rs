//! Placement of units of virtual clusters in guaranteed cells, with preemption where the guarantee requires it.
//!
//! The first of these that succeeds is used:
//! 1. free room in bound cells, or in cells that can be bound within the quota ([`Clusters::find`]);
//! 2. the same after cells were taken from lower priorities of the virtual cluster that tolerate it
//!    (`lazy_preemption`);
//! 3. room in cells, preempting work of others without guaranteed cells;
//! 4. room in cells, preempting lower priorities of the same virtual cluster (2 to 4:
//!    [`Clusters::find_by_preemption`]).
//!
//! Work outside cells, if the queue borrows, is up to the caller: it is placed like any other,
//! opportunistically.
//!
//! All trials run on copies. A result takes effect in the round with [`Clusters::commit`].

mod blocks;
mod cell_request;
mod cheapest;
mod compact;
mod hosts;
mod preemption;
mod upper_bound;

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_engine::cells::{Allocation, Request};
use muster_engine::feasibility::{self, Freed};
use muster_engine::state::{Job, Running, State};
use muster_model::command::{AllocationBasis, Command, TaskPlacement, Victim};
use muster_model::ids::{HostId, TaskIndex, UnitId, UnitIndex};
use muster_model::spec::TaskGroup;
use muster_model::topology::{CellId, Level};

use crate::capacity::Capacity;
use crate::vc::cell_request::CellRequest;
use crate::vc::hosts::{Hosts, PreemptionScope};

/// Cells tried for a gang whose tasks must share one. Beyond it a gang may wait although a cell has room.
const SHARED_TRIED_MAX: usize = 128;

/// The cells of all virtual clusters in one round.
#[derive(Clone)]
pub(super) struct Clusters<'a> {
    state: &'a State,
    allocation: Allocation,
}

/// Placement of a unit of a virtual cluster.
#[derive(Clone, Debug)]
pub(super) struct ClusterPlacement {
    /// Its tasks, in task order.
    pub(super) tasks: Vec<TaskPlacement>,
    /// Its cells.
    pub(super) allocation_basis: AllocationBasis,
    /// Attempts of the virtual cluster that continue outside their cells; to be decided before the
    /// placement.
    pub(super) downgrades: Vec<Command>,
    /// Attempts to stop, ascending.
    pub(super) victims: Vec<Victim>,
    /// Superseded claims of lower priorities of the virtual cluster, ascending.
    pub(super) supersedes: Vec<UnitId>,
    /// Whether everything is free: the unit can be placed; otherwise it can be claimed for.
    pub(super) is_free: bool,
    allocation: Allocation,
}

impl<'a> Clusters<'a> {
    pub(super) fn new(state: &'a State) -> Self {
        Self {
            state,
            allocation: state.index.allocation.clone(),
        }
    }

    /// Hosts with bound cells.
    pub(super) fn bound_hosts(&self) -> Arc<BTreeSet<HostId>> {
        let tree = self.allocation.tree();
        let cells = self.allocation.all_bound().map(|(cell, _)| cell);
        let hosts = cells.flat_map(|cell| tree.gpus(cell)).map(|(host, _)| host);
        Arc::new(hosts.collect())
    }

    /// Whether a queue is a virtual cluster.
    pub(super) fn is_cluster(&self, queue: &str) -> bool {
        let queue = self.state.queues.get(queue);
        queue.is_some_and(|queue| !queue.retired && queue.config.is_virtual_cluster())
    }

    /// Whether a unit holds its GPUs by cells.
    pub(super) fn serves(&self, job: &Job, unit: UnitIndex) -> bool {
        if job.spec.scheduling.opportunistic || !self.is_cluster(&job.spec.queue) {
            return false;
        }
        let needs_gpus = |group: &TaskGroup| group.resources.gpus > 0;
        match job.spec.gang {
            true => job.spec.groups.iter().any(needs_gpus),
            false => job
                .spec
                .group_of(TaskIndex(unit.get()))
                .is_some_and(|(group, _)| needs_gpus(group)),
        }
    }

    /// Placement in the cells that a unit has claimed, if all of it is free now.
    pub(super) fn claimed(
        &self,
        capacity: &Capacity<'a>,
        job: &Job,
        unit: UnitIndex,
    ) -> Option<ClusterPlacement> {
        let claim = job.unit(unit)?.claim.as_deref()?;
        let requester = capacity.requester(job, unit);
        feasibility::check(self.state, requester, &claim.tasks, &Freed::default()).ok()?;
        Some(ClusterPlacement {
            tasks: claim.tasks.to_vec(),
            allocation_basis: claim.allocation_basis.clone(),
            downgrades: Vec::new(),
            victims: Vec::new(),
            supersedes: Vec::new(),
            is_free: true,
            allocation: self.allocation.clone(),
        })
    }

    /// GPUs that a virtual cluster can still count on: free ones in its bound cells, and the guaranteed
    /// cells not bound yet.
    pub(super) fn gpus_left(&self, queue: &str) -> u64 {
        self.allocation.gpus_left(&Arc::from(queue))
    }

    /// Finds room in cells for a unit without preemption.
    pub(super) fn find(
        &self,
        capacity: &Capacity<'a>,
        job: &Job,
        unit: UnitIndex,
    ) -> Option<ClusterPlacement> {
        let allocation = self.without_claim(job, unit);
        let fork = capacity.for_unit(job, unit);
        let capacity = fork.as_ref().unwrap_or(capacity);
        self.find_in(&allocation, capacity, PreemptionScope::None, job, unit)
    }

    /// Records in the round what was found for a unit. What it claims and does not get becomes free.
    pub(super) fn commit(
        &mut self,
        capacity: &mut Capacity<'a>,
        job: &Job,
        unit: UnitIndex,
        found: &ClusterPlacement,
    ) {
        self.allocation = found.allocation.clone();
        for task in &found.tasks {
            if let Some(host) = self.state.host(task.host) {
                let gpus = crate::capacity::positions(host, &task.gpus);
                self.allocation.take(task.host, gpus);
            }
        }
        capacity.commit(capacity.requester(job, unit), &found.tasks);
    }

    /// Attempts that lost their cells and can have cells again: their allocation basis is restored, oldest
    /// first.
    pub(super) fn upgrades(&mut self) -> Vec<Command> {
        let guests: Vec<_> = self.allocation.guests().collect();
        let mut steps = Vec::new();
        for (epoch, id) in guests {
            if let Some(allocation_basis) = self.upgrade(id) {
                steps.push(Command::SetAllocationBasis {
                    leader: self.state.leadership.epoch,
                    job: id.job,
                    unit: id.unit,
                    epoch,
                    allocation_basis,
                });
            }
        }
        steps
    }

    fn upgrade(&mut self, id: UnitId) -> Option<AllocationBasis> {
        let Running { job, attempt, .. } = Running::of(self.state, id)?;
        if attempt.stop.is_some() {
            return None;
        }
        let gpus: Vec<_> = attempt
            .tasks
            .iter()
            .filter(|run| !run.gpus.is_empty())
            .filter_map(|run| {
                let host = self.state.host(run.host)?;
                Some((run.host, crate::capacity::positions(host, &run.gpus)))
            })
            .collect();
        let queue = Arc::from(job.spec.queue.as_str());
        let pinned = job.spec.scheduling.pinned_cell.as_deref();
        let (cells, allocation) = self.allocation.cells_around(&queue, pinned, &gpus)?;
        self.allocation = allocation;
        Some(AllocationBasis::Cells(cells))
    }

    /// The allocation without what the unit itself claims.
    fn without_claim(&self, job: &Job, unit: UnitIndex) -> Allocation {
        let mut allocation = self.allocation.clone();
        let claim = job.unit(unit).and_then(|known| known.claim.as_deref());
        if let Some(cells) = claim.and_then(|claim| claim.allocation_basis.cells()) {
            allocation.release_cells(&Arc::from(job.spec.queue.as_str()), cells);
        }
        allocation
    }

    /// Finds room in cells of an allocation on the given hosts, for all tasks, else for the minimum; with
    /// preemption, where the least work is lost.
    fn find_in(
        &self,
        allocation: &Allocation,
        capacity: &Capacity<'a>,
        scope: PreemptionScope,
        job: &Job,
        unit: UnitIndex,
    ) -> Option<ClusterPlacement> {
        let hosts = Hosts::new(self.state, capacity, job, unit, scope);
        let cell_request = CellRequest::new(job, unit, false);
        let least = CellRequest::new(job, unit, true);
        let find = |cell_request: &CellRequest<'_>| match scope {
            PreemptionScope::None => self.find_for(allocation, &hosts, cell_request),
            _ => self.cheapest_for(allocation, &hosts, cell_request),
        };
        let found = find(&cell_request);
        if found.is_none() && least.tasks() < cell_request.tasks() {
            return find(&least);
        }
        found
    }

    fn find_for(
        &self,
        allocation: &Allocation,
        hosts: &Hosts<'_, 'a>,
        cell_request: &CellRequest<'_>,
    ) -> Option<ClusterPlacement> {
        let requests = cell_request.requests(allocation);
        let shared = cell_request.shared(self.state);
        if let Some((level, required)) = shared {
            let cells = shared_cells(allocation, level, &cell_request.job().spec.queue);
            let roomy = cells
                .into_iter()
                .filter(|cell| hosts.may_hold(cell, cell_request.gpus()));
            for cell in roomy.take(SHARED_TRIED_MAX) {
                let inside = hosts.within(allocation.tree().gpus(&cell));
                let found = requests.iter().find_map(|request| {
                    self.try_request(allocation, &inside, cell_request, request)
                });
                if found.is_some() {
                    return found;
                }
            }
            if required {
                return None;
            }
        }
        requests
            .iter()
            .find_map(|request| self.try_request(allocation, hosts, cell_request, request))
    }

    fn try_request(
        &self,
        allocation: &Allocation,
        hosts: &Hosts<'_, 'a>,
        cell_request: &CellRequest<'_>,
        request: &Request,
    ) -> Option<ClusterPlacement> {
        let served =
            blocks::serve_all(allocation, request, hosts, &cell_request.blocks(self.state))?;
        let mut room = served.room;
        let placed = hosts
            .compacted(request, &served.tasks, &served.cells)
            .unwrap_or(served.tasks);
        let tasks = cell_request.placements(self.state, &placed, &mut room)?;
        let in_the_way = room.in_the_way(&tasks)?;
        Some(ClusterPlacement {
            allocation_basis: AllocationBasis::Cells(served.cells),
            downgrades: Vec::new(),
            victims: room.victims(&in_the_way),
            supersedes: room.outranked(&tasks).into_iter().collect(),
            is_free: in_the_way.is_empty(),
            tasks,
            allocation: served.allocation,
        })
    }
}

/// Cells of a level that the tasks of a unit could share: those in which the virtual cluster has bound
/// cells first.
fn shared_cells(allocation: &Allocation, level: Level, queue: &str) -> Vec<CellId> {
    let tree = allocation.tree();
    let mut cells = tree.cells_of(level);
    let bound: BTreeSet<CellId> = allocation
        .all_bound()
        .filter(|(_, bound)| *bound.queue == *queue)
        .flat_map(|(cell, _)| tree.around(cell).collect::<Vec<_>>())
        .collect();
    cells.sort_by_cached_key(|cell| (!bound.contains(cell), tree.load(cell)));
    cells
}
