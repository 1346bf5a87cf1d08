//! Cell bookkeeping as attempts and claims begin and end, including attempts that would hold cells if they
//! could.

use std::sync::Arc;

use muster_model::command::AllocationBasis;
use muster_model::ids::{AttemptEpoch, UnitId};
use muster_model::spec::JobSpec;
use muster_model::topology::CellId;

use crate::cells::Allocation;

/// An attempt ordered by age, oldest first.
pub type OpportunisticAttempt = (AttemptEpoch, UnitId);

impl Allocation {
    /// Records the new allocation basis of an attempt; `None` if it has ended.
    pub(crate) fn note(
        &mut self,
        spec: &JobSpec,
        attempt: OpportunisticAttempt,
        allocation_basis: Option<&AllocationBasis>,
    ) {
        if !self.is_active() {
            return;
        }
        if allocation_basis == Some(&AllocationBasis::Opportunistic)
            && !spec.scheduling.opportunistic
        {
            self.guests_mut().insert(attempt);
        } else {
            self.guests_mut().remove(&attempt);
        }
    }

    /// Binds the cells of an attempt or a claim; the caller checked that they can be bound.
    pub fn bind_cells(&mut self, queue: &Arc<str>, cells: &[CellId]) {
        if !self.is_active() {
            return;
        }
        for cell in cells {
            let bound = self.bind(queue, cell);
            debug_assert!(bound.is_ok(), "{cell:?} of {queue}: {bound:?}");
        }
    }

    /// Releases the cells of an attempt or a claim that has ended.
    pub fn release_cells(&mut self, queue: &Arc<str>, cells: &[CellId]) {
        for cell in cells {
            self.release(queue, cell);
        }
    }
}
