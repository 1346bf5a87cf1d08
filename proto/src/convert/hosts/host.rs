//! The task that holds a GPU.

use muster_model::host::Holder;
use muster_model::ids::{AttemptEpoch, JobId, TaskIndex, UnitIndex};

use crate::v1;

impl From<Holder> for v1::Holder {
    fn from(holder: Holder) -> Self {
        Self {
            job_id: holder.job.get(),
            unit: holder.unit.get(),
            epoch: holder.epoch.get(),
            task: holder.task.get(),
        }
    }
}

impl From<v1::Holder> for Holder {
    fn from(wire: v1::Holder) -> Self {
        Self {
            job: JobId(wire.job_id),
            unit: UnitIndex(wire.unit),
            epoch: AttemptEpoch(wire.epoch),
            task: TaskIndex(wire.task),
        }
    }
}
