//! Permission to run commands inside a task (exec).

use std::collections::BTreeSet;

use crate::state::Job;

/// Whether an author may run commands beside the tasks of a job: its owner may, and admins.
///
/// The author's name is trusted, as everywhere in this interface: authentication happens before it.
#[must_use]
pub fn may_enter(job: &Job, author: &str, admins: &BTreeSet<String>) -> bool {
    !author.is_empty() && (job.spec.user == author || admins.contains(author))
}
