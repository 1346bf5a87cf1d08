//! Who may enter a running task with a command of their own.

use std::collections::BTreeSet;

use crate::state::Job;

/// Whether an author may run commands beside the tasks of a job: its user may, and the admins.
///
/// An author is who they say they are, as everywhere in this interface: who may reach it is decided in front of it.
#[must_use]
pub fn may_enter(job: &Job, author: &str, admins: &BTreeSet<String>) -> bool {
    !author.is_empty() && (job.spec.user == author || admins.contains(author))
}
