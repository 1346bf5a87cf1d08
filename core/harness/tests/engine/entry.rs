//! Tests of the permission to enter a running task.

use muster_harness::{Cluster, gang};

use std::collections::BTreeSet;

use muster_engine::rights::may_enter;

#[test]
fn a_process_is_run_in_a_task_only_by_its_user_or_an_admin() {
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
