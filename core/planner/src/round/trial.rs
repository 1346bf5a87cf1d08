//! Dry run of a unit's turn: whether it would be placed, as specified or with a changed specification.

use muster_engine::state::{Job, amounts_of};
use muster_model::command::AllocationBasis;
use muster_model::ids::UnitIndex;

use crate::order::Turn;
use crate::round::Round;
use crate::unit;

impl Round<'_> {
    /// Whether a unit would be placed now, without preemption and within all limits. Allocates nothing.
    pub(crate) fn finds_room(&self, turn: Turn, job: &Job, unit: UnitIndex) -> bool {
        let limited = self.order.queued(turn.class).limited;
        let within_limits = |allocation_basis: &AllocationBasis, tasks: &[_]| {
            let amounts = amounts_of(&self.state.hosts, &job.spec, tasks);
            let allowance = self.allowance.for_unit(job, unit);
            !limited
                || allowance
                    .reached(&job.spec, allocation_basis, &amounts)
                    .is_none()
        };
        let mut allocation_basis = self.allocation_basis_without_gpus(job);
        if self.clusters.serves(job, unit) {
            if let Some(found) = self.clusters.find(&self.capacity, job, unit) {
                return within_limits(&found.allocation_basis, &found.tasks);
            }
            let queue = self.state.queues.get(job.spec.queue.as_str());
            if !queue.is_some_and(|queue| queue.config.borrow) {
                return false;
            }
            allocation_basis = AllocationBasis::Opportunistic;
        }
        unit::place(&mut self.capacity.clone(), job, unit)
            .is_ok_and(|placed| within_limits(&allocation_basis, &placed.tasks))
    }
}
