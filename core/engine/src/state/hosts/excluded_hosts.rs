//! Hosts that users exclude from their jobs: a hint at faults that no sensor detects.

use std::collections::{BTreeMap, BTreeSet};

use muster_health::state::Excludes;
use muster_model::ids::HostId;

use crate::state::State;

impl State {
    /// Returns, by host, the number of users whose live jobs exclude it by name. A user counts once, however
    /// many jobs it has.
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
