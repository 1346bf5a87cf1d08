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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use muster_harness::{Cluster, gang};

    use super::*;

    #[test]
    fn a_task_is_entered_by_its_user_and_by_admins() {
        let mut cluster = Cluster::with_hosts(1, 8);
        let mut spec = gang("train", 1, 8);
        spec.user = "ada".to_owned();
        let job = cluster.submit(spec);
        let job = cluster.state.job(job).unwrap();
        let admins = BTreeSet::from(["grace".to_owned(), String::new()]);
        for (author, may) in [("ada", true), ("grace", true), ("eve", false), ("", false)] {
            assert_eq!(may_enter(job, author, &admins), may, "{author}");
        }
    }
}
