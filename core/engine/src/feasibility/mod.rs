//! Whether a host can take a task, and hosts a unit: the one answer that both the planner and `apply` go by.
//!
//! A [`Ledger`] is opened on a host for one unit and takes task after task; nothing is changed in the
//! state. [`check`] does so for a whole unit, and looks at what its tasks have to have in common.

mod claims;
mod ledger;
mod misfit;
mod room;
mod unit;

pub use claims::{Asker, Freed};
pub use ledger::Ledger;
pub use misfit::Misfit;
pub use room::Room;
pub use unit::{Unfit, check, check_member};

use muster_model::host::{Gpu, Host};
use muster_model::ids::{HostId, TaskIndex, UnitIndex};
use muster_model::spec::TaskGroup;

use crate::state::{Job, State};

/// Whether a GPU's model is one that the group accepts.
#[must_use]
pub fn acceptable(group: &TaskGroup, gpu: &Gpu) -> bool {
    group.resources.accepts_model(&gpu.model)
}

/// Why a host cannot run a group's tasks the way they are to be run.
#[must_use]
pub fn unequipped(group: &TaskGroup, host: &Host) -> Option<Misfit> {
    let lacks_engine = group.execution.container.is_some() && !host.has_container_engine();
    lacks_engine.then_some(Misfit::NoContainerEngine)
}

/// Tasks of one group of a job that hold resources on a host.
pub fn tasks_of_group(state: &State, job: &Job, host: HostId, group: &TaskGroup) -> u32 {
    let first = (host, job.id, UnitIndex(0));
    let last = (host, job.id, UnitIndex(u32::MAX));
    let units = state.index.on_host.range(first..=last);
    let count = units
        .filter_map(|((_, _, unit), _)| job.unit(*unit)?.attempt.as_deref())
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
