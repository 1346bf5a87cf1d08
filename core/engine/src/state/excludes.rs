//! Users who keep their jobs off hosts: they may know something that nothing measures.

use std::collections::{BTreeMap, BTreeSet};

use muster_health::book::Excludes;
use muster_model::ids::HostId;

use crate::state::State;

impl State {
    /// How many users have live jobs that exclude a host by name, by host. However many jobs a user has, it counts once.
    #[must_use]
    pub fn excludes(&self) -> Excludes {
        let live = self.jobs.values().filter(|job| !job.phase.is_terminal());
        let mut users: BTreeMap<HostId, BTreeSet<&str>> = BTreeMap::new();
        for job in live {
            for name in &job.spec.scheduling.hosts_excluded {
                if let Some(host) = self.host_names.get(name.as_str()) {
                    users.entry(*host).or_default().insert(&job.spec.user);
                }
            }
        }
        let count = |users: BTreeSet<&str>| u32::try_from(users.len()).unwrap_or(u32::MAX);
        users
            .into_iter()
            .map(|(host, users)| (host, count(users)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
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
}
