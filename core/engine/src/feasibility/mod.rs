//! Fit of tasks on hosts, and of units on sets of hosts: shared by the planner and `apply`.
//!
//! A [`HostTrial`] is opened on a host for one unit and takes task after task; the state is not changed.
//! [`check`] does so for a whole unit, and checks the constraints across its tasks.

mod claims;
mod ledger;
mod misfit;
mod room;
mod unit;

pub use claims::{Freed, Requester};
pub use ledger::HostTrial;
pub use misfit::Misfit;
pub use room::Room;
pub use unit::{Unfit, check, check_member};

use muster_model::host::{Gpu, Host};
use muster_model::ids::{HostId, TaskIndex};
use muster_model::spec::TaskGroup;

use crate::state::{Job, State};

/// Whether the group accepts a GPU's model.
#[must_use]
pub fn acceptable(group: &TaskGroup, gpu: &Gpu) -> bool {
    group.resources.accepts_model(&gpu.model)
}

/// Returns why a host lacks what a group's tasks need to run, such as a container engine.
#[must_use]
pub fn unequipped(group: &TaskGroup, host: &Host) -> Option<Misfit> {
    let lacks_engine = group.execution.container.is_some() && !host.has_container_engine();
    lacks_engine.then_some(Misfit::NoContainerEngine)
}

/// Returns the number of tasks of a job's group that hold resources on a host.
pub fn tasks_of_group(state: &State, job: &Job, host: HostId, group: &TaskGroup) -> u32 {
    let units = state.index.units_of_job_on(job.id, host);
    let count = units
        .filter_map(|id| job.unit(id.unit)?.attempt.as_deref())
        .flat_map(|attempt| &attempt.tasks)
        .filter(|run| run.host == host && belongs(job, run.task, group))
        .count();
    u32::try_from(count).unwrap_or(u32::MAX)
}

fn belongs(job: &Job, task: TaskIndex, group: &TaskGroup) -> bool {
    job.spec
        .group_of(task)
        .is_some_and(|(of_task, _)| of_task.name == group.name)
}
