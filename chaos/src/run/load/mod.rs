//! The load: users who submit, read and cancel, and watchers who want to hear of everything.

mod users;
mod watchers;

pub(super) use users::{Users, storm_job};
pub(super) use watchers::{Delivery, Heard, Watchers};
