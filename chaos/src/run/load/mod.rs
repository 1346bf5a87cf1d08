//! Load of a run: users who submit, read and cancel jobs, and watchers of all events.

mod users;
mod watchers;

pub(super) use users::{GANG_TASKS_MAX, LoadSpec, TaskProgram, Users, storm_job};
pub(super) use watchers::{Delivery, Gap, WatchedEvents, Watchers};
