//! The load: users who submit, read and cancel, and watchers who want to hear of everything.

mod users;
mod watchers;

pub(super) use users::{GANG_TASKS_MAX, Tool, Users, Workshop, storm_job};
pub(super) use watchers::{Delivery, Gap, Heard, Watchers};
