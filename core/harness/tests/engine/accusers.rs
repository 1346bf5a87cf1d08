//! Tests that lemon detection needs failures of more than one user.

use muster_control::reactor::health::lemons;
use muster_harness::{self as testing, Cluster};
use muster_model::command::{Command, ConfigCommand, JobDefaults};
use muster_model::time::MINUTE_MS;

/// Fails a job of a user with a start error of its host.
fn fail(cluster: &mut Cluster, user: &str) {
    let mut spec = testing::single("unmounted", 1, 1);
    spec.user = user.to_owned();
    let job = cluster.submit(spec);
    assert_eq!(cluster.place_all(job), 1);
    cluster.exit(job, 0, testing::start_error("a mount does not answer"));
    cluster.wait(2 * MINUTE_MS);
}

#[test]
fn failures_of_one_users_jobs_make_no_host_a_lemon() {
    let mut cluster = Cluster::with_hosts(1, 4);
    cluster.apply(&Command::Config(ConfigCommand::SetJobDefaults {
        leader: cluster.leader(),
        defaults: JobDefaults::default(),
    }));
    let found = |cluster: &Cluster| lemons(cluster.leader(), &cluster.state, cluster.now).len();
    for _ in 0..4 {
        fail(&mut cluster, "ada");
    }
    assert_eq!(found(&cluster), 0);
    fail(&mut cluster, "bob");
    assert_eq!(found(&cluster), 1);
}
