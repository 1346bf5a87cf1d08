//! Reassignment of guaranteed work when cells or quotas change: nothing is stopped; the newest work that is
//! no longer covered continues as opportunistic.

use std::sync::Arc;

use muster_model::command::{AllocationBasis, TaskPlacement};
use muster_model::ids::{AttemptEpoch, Revision, UnitId};
use muster_model::topology::{CellId, ClusterTree, Topology};

use crate::cells::check::check_binding;
use crate::cells::{Allocation, CellTree, OpportunisticAttempt, cells_of};
use crate::state::{Job, State, Unit};

/// Effects of a change of hosts, topology or queues on virtual clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reassignment {
    /// The new allocation.
    pub allocation: Allocation,
    /// Attempts with a new allocation basis, oldest first.
    pub attempts: Vec<(UnitId, AllocationBasis)>,
    /// Claims with a new allocation basis, oldest first; a claim that would be opportunistic is to be given
    /// up.
    pub claims: Vec<(UnitId, AllocationBasis)>,
}

/// An attempt or claim that holds cells.
struct Holding<'a> {
    since: Revision,
    job: &'a Job,
    unit: UnitId,
    is_claim: bool,
    cells: &'a [CellId],
    tasks: Vec<TaskPlacement>,
}

/// Visits all guaranteed work, oldest first, and keeps what the new hosts, topology and queues still cover.
/// `before` is the topology by which the cells were named.
#[must_use]
pub fn settle(state: &State, before: &Topology) -> Reassignment {
    let mut settled = Reassignment {
        allocation: empty(state, &state.index.tree),
        ..Reassignment::default()
    };
    let mut holdings: Vec<Holding<'_>> = state.jobs.values().flat_map(holdings).collect();
    holdings.sort_by_key(|holding| holding.since);
    if settled.allocation.is_active() {
        settled.allocation.guests_mut().extend(guests(state));
    }
    for holding in holdings {
        let allocation_basis = settled.keep(state, before, &holding);
        if allocation_basis == AllocationBasis::Opportunistic && !holding.is_claim {
            let guest = (AttemptEpoch(holding.since.get()), holding.unit);
            settled
                .allocation
                .note(&holding.job.spec, guest, Some(&allocation_basis));
        }
        if allocation_basis.cells() == Some(holding.cells) {
            continue;
        }
        let changed = if holding.is_claim {
            &mut settled.claims
        } else {
            &mut settled.attempts
        };
        changed.push((holding.unit, allocation_basis));
    }
    settled
}

impl Reassignment {
    fn keep(&mut self, state: &State, before: &Topology, holding: &Holding<'_>) -> AllocationBasis {
        let spec = &holding.job.spec;
        let queue = state.queues.get(spec.queue.as_str());
        let queue = queue.filter(|queue| !queue.retired);
        if queue.is_some_and(|queue| !queue.config.is_virtual_cluster()) {
            return AllocationBasis::Share;
        }
        let Some(cells) = renamed(holding.cells, before, &state.topology) else {
            return AllocationBasis::Opportunistic;
        };
        let kept = check_binding(state, &self.allocation, spec, &cells, &holding.tasks);
        if kept.is_err() {
            return AllocationBasis::Opportunistic;
        }
        let queue = Arc::from(spec.queue.as_str());
        self.allocation.bind_cells(&queue, &cells);
        AllocationBasis::Cells(cells)
    }
}

/// Returns the same cells in a topology with other level depths; `None` if a level is gone.
fn renamed(cells: &[CellId], before: &Topology, now: &Topology) -> Option<Vec<CellId>> {
    let mut renamed = cells
        .iter()
        .map(|cell| match cell {
            CellId::Inside(host, level, gpus) => {
                let level = now.level(before.name(*level)?)?;
                Some(CellId::Inside(*host, level, *gpus))
            }
            CellId::Above(_) | CellId::Host(_) => Some(cell.clone()),
        })
        .collect::<Option<Vec<CellId>>>()?;
    renamed.sort_unstable();
    Some(renamed)
}

/// Returns the allocation of a state with only pinned cells bound; empty without virtual clusters.
fn empty(state: &State, tree: &ClusterTree) -> Allocation {
    let queues = || {
        let live = state.queues.values().filter(|queue| !queue.retired);
        live.map(|queue| (queue.name.as_ref(), queue.config.as_ref()))
    };
    if !queues().any(|(_, config)| config.is_virtual_cluster()) {
        return Allocation::default();
    }
    let tree = CellTree::new(tree.topology(), cells_of(state, tree));
    Allocation::new(tree, queues())
}

impl Allocation {
    /// Derives the allocation from the rest of a state.
    #[must_use]
    pub fn rebuild(state: &State) -> Self {
        Self::by_tree(state, &state.cluster_tree())
    }

    pub(crate) fn by_tree(state: &State, tree: &ClusterTree) -> Self {
        let mut allocation = empty(state, tree);
        if allocation.is_active() {
            for holding in state.jobs.values().flat_map(holdings) {
                let queue = Arc::from(holding.job.spec.queue.as_str());
                allocation.bind_cells(&queue, holding.cells);
            }
            allocation.guests_mut().extend(guests(state));
        }
        allocation
    }
}

/// Returns the attempts that would hold cells if they could.
fn guests(state: &State) -> impl Iterator<Item = OpportunisticAttempt> {
    let jobs = state.jobs.values();
    let jobs = jobs.filter(|job| job.finished_at.is_none() && !job.spec.scheduling.opportunistic);
    jobs.flat_map(|job| {
        job.units.iter().filter_map(|(index, unit)| {
            let attempt = unit.attempt.as_deref()?;
            let is_guest = attempt.allocation_basis == AllocationBasis::Opportunistic;
            is_guest.then_some((attempt.epoch, UnitId::new(job.id, *index)))
        })
    })
}

fn holdings(job: &Arc<Job>) -> impl Iterator<Item = Holding<'_>> {
    job.units
        .iter()
        .filter(|_| job.finished_at.is_none())
        .flat_map(|(index, unit)| of_unit(job, UnitId::new(job.id, *index), unit))
}

fn of_unit<'a>(job: &'a Job, id: UnitId, unit: &'a Unit) -> impl Iterator<Item = Holding<'a>> {
    let attempt = unit.attempt.as_deref().and_then(|attempt| {
        Some(Holding {
            since: Revision(attempt.epoch.get()),
            job,
            unit: id,
            is_claim: false,
            cells: attempt.allocation_basis.cells()?,
            tasks: attempt.tasks.iter().map(placement_of).collect(),
        })
    });
    let claim = unit.claim.as_deref().and_then(|claim| {
        Some(Holding {
            since: claim.revision,
            job,
            unit: id,
            is_claim: true,
            cells: claim.allocation_basis.cells()?,
            tasks: claim.tasks.to_vec(),
        })
    });
    attempt.into_iter().chain(claim)
}

fn placement_of(run: &crate::state::TaskRun) -> TaskPlacement {
    TaskPlacement {
        task: run.task,
        host: run.host,
        gpus: run.gpus.clone(),
    }
}
