//! Hosts accused by the jobs of a single user.

use std::collections::{BTreeMap, BTreeSet};

use muster_model::health::{Attribution, Charge, Class};
use muster_model::ids::HostId;

use crate::state::{PastAttempt, State};

impl State {
    /// Returns those of these hosts to which only failures of one user's jobs are attributed, none of them
    /// proven, among jobs still kept: a faulty host would fail other users' jobs too.
    #[must_use]
    pub fn accused_by_one_user(&self, hosts: &BTreeSet<HostId>) -> BTreeSet<HostId> {
        let mut users: BTreeMap<HostId, BTreeSet<&str>> = BTreeMap::new();
        let mut proven: BTreeSet<HostId> = BTreeSet::new();
        for job in self.jobs.values() {
            let past = job.units.values().flat_map(|unit| &unit.past);
            let against = past.filter_map(accusation);
            for (host, attribution) in against.filter(|(host, _)| hosts.contains(host)) {
                if attribution.is_proven() {
                    proven.insert(host);
                } else {
                    users.entry(host).or_default().insert(&job.spec.user);
                }
            }
        }
        users.retain(|host, users| users.len() == 1 && !proven.contains(host));
        users.into_keys().collect()
    }
}

/// Returns the host that a single-host attempt ran on, if its end was charged to the infrastructure.
fn accusation(past: &PastAttempt) -> Option<(HostId, &Attribution)> {
    let attribution = past.attribution.as_deref()?;
    let is_hardware = matches!(
        attribution.class,
        Class::Gpu | Class::Host | Class::Nic | Class::Storage
    );
    match past.hosts[..] {
        [host] if is_hardware && attribution.charge == Charge::Infra => Some((host, attribution)),
        _ => None,
    }
}
