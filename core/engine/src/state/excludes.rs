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
