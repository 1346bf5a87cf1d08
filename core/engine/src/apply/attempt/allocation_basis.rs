//! Changes of the allocation basis of attempts.

use std::sync::Arc;

use muster_model::command::{AllocationBasis, TaskPlacement};
use muster_model::ids::{AttemptEpoch, JobId, UnitId, UnitIndex};
use muster_model::lifecycle::UnitPhase;
use muster_model::rejection::Rejection;

use crate::apply::Step;
use crate::apply::attempt::cell_binding;
use crate::apply::job::admission::AdmissionRequest;
use crate::feasibility::Freed;
use crate::state::{Answer, Attempt, Job, State, TaskRun};

impl Step<'_> {
    pub(in crate::apply) fn set_allocation_basis(
        &mut self,
        job: JobId,
        unit: UnitIndex,
        epoch: AttemptEpoch,
        allocation_basis: &AllocationBasis,
    ) -> Result<Answer, Rejection> {
        let id = UnitId::new(job, unit);
        let (job, attempt) = self.current_attempt(id, epoch)?;
        if attempt.allocation_basis == *allocation_basis {
            return Ok(Answer::Done);
        }
        if attempt.stop.is_some() {
            return Err(Rejection::UnitPhase {
                job: id.job,
                unit,
                phase: UnitPhase::Stopping,
            });
        }
        check_change(self.state, job, attempt, allocation_basis)?;
        let tasks: Vec<TaskPlacement> = attempt.tasks.iter().map(TaskRun::place).collect();
        let request = AdmissionRequest {
            job,
            unit,
            allocation_basis,
            tasks: &tasks,
            freed: &Freed::default(),
        };
        cell_binding::check(self.state, request)?;
        self.change_basis(id, allocation_basis);
        Ok(Answer::Done)
    }

    /// Changes the allocation basis of an attempt; unbinds or binds its cells.
    fn change_basis(&mut self, id: UnitId, allocation_basis: &AllocationBasis) {
        let job = self.job_mut(id.job);
        let spec = Arc::clone(&job.spec);
        let before = job.attempt_mut(id.unit).allocation_basis.clone();
        self.unbind(&spec, &before);
        self.assign_basis(id, allocation_basis);
        self.bind(&spec, allocation_basis);
        let epoch = self.attempt_mut(id).epoch;
        let allocation = &mut self.state.index.allocation;
        allocation.note(&spec, (epoch, id), Some(allocation_basis));
    }
}

/// Checks a change: work of a virtual cluster may change from its cells to opportunistic use if its job
/// accepts lazy preemption, and back into cells; work left on another queue's basis by a configuration change
/// may change to its own queue's.
fn check_change(
    state: &State,
    job: &Job,
    attempt: &Attempt,
    allocation_basis: &AllocationBasis,
) -> Result<(), Rejection> {
    let spec = &job.spec;
    let queue = state.queues.get(spec.queue.as_str());
    let is_virtual_cluster =
        queue.is_some_and(|queue| queue.config.is_virtual_cluster() && !queue.retired);
    let refused = match (&attempt.allocation_basis, allocation_basis) {
        _ if spec.scheduling.opportunistic => Some("the job is opportunistic"),
        (_, AllocationBasis::Cells(_)) if !is_virtual_cluster => {
            Some("it is not a virtual cluster")
        }
        (_, AllocationBasis::Share) if is_virtual_cluster => {
            Some("it is a virtual cluster: its GPUs are held by cells")
        }
        (AllocationBasis::Cells(_), AllocationBasis::Opportunistic)
            if !spec.scheduling.lazy_preemption =>
        {
            Some("the job does not take lazy preemption")
        }
        (AllocationBasis::Share, AllocationBasis::Opportunistic) if !is_virtual_cluster => {
            Some("the job is not opportunistic")
        }
        _ => None,
    };
    if let Some(detail) = refused {
        return Err(Rejection::CellsUnsafe {
            queue: spec.queue.clone(),
            detail: detail.to_owned(),
        });
    }
    Ok(())
}
