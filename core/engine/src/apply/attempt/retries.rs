//! Retries in place: a unit with a failure charged to its job is restarted at once on its hosts and GPUs, in
//! the step in which it failed, up to the job's limit of consecutive retries.

use std::sync::Arc;

use muster_model::command::Placement;
use muster_model::desired::RestartReason;
use muster_model::event::EventKind;
use muster_model::ids::{AttemptEpoch, UnitId};
use muster_model::time::TimeMs;

use crate::apply::Step;
use crate::apply::attempt::placement;
use crate::state::{Attempt, TaskRun};

/// A unit that waits again and may be restarted in place.
#[derive(Debug)]
pub(in crate::apply) struct RetryInPlace {
    /// Its previous placement.
    pub(in crate::apply) again: Placement,
    /// The attempt that failed there.
    pub(in crate::apply) ended: AttemptEpoch,
    /// Reason of the restart.
    pub(in crate::apply) reason: RestartReason,
    /// The end of its back-off if it cannot stay.
    pub(in crate::apply) not_before: TimeMs,
}

impl Step<'_> {
    /// Returns an attempt's placement if its job allows one more retry in place.
    pub(in crate::apply) fn placement_in_place(
        &self,
        id: UnitId,
        attempt: &Attempt,
    ) -> Option<Placement> {
        let job = self.state.job(id.job)?;
        let known = job.unit(id.unit)?;
        let is_left = known.local_retries < job.spec.lifecycle.local_retries_max;
        let is_complete = attempt.vacancy().is_none();
        (is_left && is_complete && known.claim.is_none()).then(|| Placement {
            leader: self.state.leadership.epoch,
            job: id.job,
            unit: id.unit,
            tasks: attempt.tasks.iter().map(TaskRun::place).collect(),
            basis: attempt.allocation_basis.clone(),
            barrier: attempt.barrier.is_some(),
        })
    }

    /// Restarts the units that may stay in place; the others wait for placement.
    ///
    /// Their resources are free by now, but may be unfit or claimed by another unit.
    pub(in crate::apply) fn retry_in_place(&mut self) {
        for pending in std::mem::take(&mut self.retries_in_place) {
            match placement::check_again(self.state, &pending.again) {
                Ok(by_host) => self.begin_again(&pending, &by_host),
                Err(_) => self.emit(EventKind::UnitRequeued {
                    job: pending.again.job,
                    unit: pending.again.unit,
                    reason: pending.reason,
                    not_before: pending.not_before,
                }),
            }
        }
    }

    fn begin_again(&mut self, pending: &RetryInPlace, by_host: &placement::ByHost) {
        let Placement { job, unit, .. } = pending.again;
        let id = pending.again.unit_id();
        let time = self.state.time;
        let spec = Arc::clone(&self.job_mut(job).spec);
        let known = self.unit_mut(id);
        known.not_before = time;
        let retry = known.local_retries + 1;
        self.state.index.delayed.remove(&(pending.not_before, id));
        self.emit(EventKind::UnitRetried {
            job,
            unit,
            epoch: pending.ended,
            retry,
            retries_max: spec.lifecycle.local_retries_max,
        });
        self.begin_attempt(&pending.again, by_host);
        self.unit_mut(id).local_retries = retry;
    }
}
