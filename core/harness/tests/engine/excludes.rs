//! Hosts that running jobs exclude, counted by user.

use muster_harness::{self as testing, Cluster};
use muster_model::command::Command;
use muster_model::ids::HostId;

#[test]
fn users_count_once_and_only_as_long_as_their_jobs_live() {
    let mut cluster = Cluster::new();
    for number in 1..=2 {
        cluster.register(testing::host(number, 1));
    }
    let submit = |cluster: &mut Cluster, user: &str, hosts: &[&str]| {
        let mut spec = testing::single("off", 1, 1);
        spec.user = user.to_owned();
        spec.scheduling.hosts_excluded = hosts.iter().map(|it| (*it).to_owned()).collect();
        cluster.submit(spec)
    };
    submit(&mut cluster, "ada", &["node-0001"]);
    submit(&mut cluster, "ada", &["node-0001", "node-0002"]);
    submit(&mut cluster, "bob", &["node-0001", "nowhere"]);
    let over = submit(&mut cluster, "eve", &["node-0002"]);
    let request = cluster.next_request();
    cluster.apply(&Command::CancelJob {
        request,
        job: over,
        author: "eve".to_owned(),
        reason: String::new(),
    });
    let excludes = cluster.state.excludes();
    let expected = [(HostId(1), 2), (HostId(2), 1)];
    assert_eq!(excludes, expected.into());
}
