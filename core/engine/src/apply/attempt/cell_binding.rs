//! Cells of virtual clusters: bound while an attempt or a claim uses them, and reassigned when hosts,
//! topology or queues change.

use std::sync::Arc;

use muster_model::command::{AllocationBasis, TaskPlacement};
use muster_model::event::EventKind;
use muster_model::ids::{TaskIndex, UnitId};
use muster_model::rejection::Rejection;
use muster_model::spec::JobSpec;
use muster_model::topology::Topology;

use crate::apply::Step;
use crate::apply::job::admission::AdmissionRequest;
use crate::cells::{self, check_binding, check_cover};
use crate::state::{Attempt, Job, State, TaskRun};

/// Checks that a unit may hold its request by cells; its own claim and those given up for it do not count.
pub(in crate::apply) fn check(
    state: &State,
    request: AdmissionRequest<'_>,
) -> Result<(), Rejection> {
    let AdmissionRequest {
        job,
        allocation_basis,
        tasks,
        freed,
        ..
    } = request;
    let AllocationBasis::Cells(cells) = allocation_basis else {
        return Ok(());
    };
    let mut allocation = state.index.allocation.clone();
    let own = request.unit_id();
    for id in freed.claims.iter().chain([&own]) {
        let claimant = state.job(id.job);
        let claim = claimant.and_then(|job| job.unit(id.unit)?.claim.as_deref());
        if let (Some(claimant), Some(cells)) = (
            claimant,
            claim.and_then(|claim| claim.allocation_basis.cells()),
        ) {
            allocation.release_cells(&Arc::from(claimant.spec.queue.as_str()), cells);
        }
    }
    check_binding(state, &allocation, &job.spec, cells, tasks).map_err(|detail| {
        Rejection::CellsUnsafe {
            queue: job.spec.queue.clone(),
            detail,
        }
    })
}

/// Whether an attempt keeps all its cells without one of its members: others of it use each of them.
pub(in crate::apply) fn others_use_all(state: &State, attempt: &Attempt, task: TaskIndex) -> bool {
    attempt.allocation_basis.cells().is_none_or(|cells| {
        let others = others_than(attempt, task);
        check_cover(state, state.index.allocation.tree(), cells, &others).is_ok()
    })
}

/// Checks that a new member of an attempt that holds cells stays within them.
pub(in crate::apply) fn check_member(
    state: &State,
    job: &Job,
    attempt: &Attempt,
    task: &TaskPlacement,
) -> Result<(), Rejection> {
    let Some(cells) = attempt.allocation_basis.cells() else {
        return Ok(());
    };
    let mut tasks = others_than(attempt, task.task);
    tasks.push(task.clone());
    let tree = state.index.allocation.tree();
    check_cover(state, tree, cells, &tasks).map_err(|detail| Rejection::CellsUnsafe {
        queue: job.spec.queue.clone(),
        detail,
    })
}

fn others_than(attempt: &Attempt, task: TaskIndex) -> Vec<TaskPlacement> {
    let others = attempt.tasks.iter().filter(|run| run.task != task);
    others.map(TaskRun::place).collect()
}

impl Step<'_> {
    /// Binds the cells of a new holder.
    pub(in crate::apply) fn bind(&mut self, spec: &JobSpec, allocation_basis: &AllocationBasis) {
        if let Some(cells) = allocation_basis.cells() {
            let queue = Arc::from(spec.queue.as_str());
            self.state.index.allocation.bind_cells(&queue, cells);
        }
    }

    /// Unbinds the cells of a former holder.
    pub(in crate::apply) fn unbind(&mut self, spec: &JobSpec, allocation_basis: &AllocationBasis) {
        if let Some(cells) = allocation_basis.cells() {
            let queue = Arc::from(spec.queue.as_str());
            self.state.index.allocation.release_cells(&queue, cells);
        }
    }

    /// Updates the cells of virtual clusters after a change of hosts, topology or queues: no work is stopped,
    /// work no longer covered continues as opportunistic, claims no longer covered are given up.
    pub(in crate::apply) fn settle_cells(&mut self, before: &Topology) {
        let settled = cells::settle(self.state, before);
        // Host changes apply to the new cells from here on.
        self.state.index.allocation = settled.allocation;
        for (unit, allocation_basis) in settled.attempts {
            self.assign_basis(unit, &allocation_basis);
        }
        for (unit, allocation_basis) in settled.claims {
            let is_lost = allocation_basis == AllocationBasis::Opportunistic;
            if let Some(claim) = self.unit_mut(unit).claim.as_mut() {
                Arc::make_mut(claim).allocation_basis = allocation_basis;
            }
            if is_lost {
                self.give_up_claim(unit, "its cells are not guaranteed any more");
            }
        }
    }

    /// Records the allocation basis of an attempt without binding cells.
    pub(in crate::apply) fn assign_basis(
        &mut self,
        id: UnitId,
        allocation_basis: &AllocationBasis,
    ) {
        let (before, epoch) = self.edit_attempt(id, |unit| {
            let attempt = unit.attempt.as_mut().map(Arc::make_mut);
            let attempt = attempt.expect("those who stand on some ground are attempts");
            let before = std::mem::replace(&mut attempt.allocation_basis, allocation_basis.clone());
            (before, attempt.epoch)
        });
        self.recount(id, |attempt| attempt.allocation_basis = before);
        self.emit(EventKind::AllocationBasisChanged {
            job: id.job,
            unit: id.unit,
            epoch,
            allocation_basis: allocation_basis.clone(),
        });
    }
}
