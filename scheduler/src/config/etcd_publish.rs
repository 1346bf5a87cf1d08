//! Settings of the publication in etcd.

use muster_service::settings::BrokenRule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{PEERS_MAX, require};

/// Shortest lease in seconds: etcd grants none below its election timeout.
const LEASE_SECONDS_MIN: u64 = 2;
/// Longest lease in seconds: a dead replica stays listed for that long.
const LEASE_SECONDS_MAX: u64 = 3_600;

/// Publication of this replica in etcd, and bootstrap of a new group through etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EtcdPublishSettings {
    /// Seconds after which etcd removes the entries of a dead replica or leader.
    pub lease_seconds: u64,
    /// Whether the current placements are mirrored to keys.
    pub plan: bool,
    /// Number of replicas of a new group that find each other through etcd: `peers` is ignored then, and
    /// `advertise` must give the address of this one. 0: groups are bootstrapped from `peers`.
    pub bootstrap_expect: usize,
    /// Seconds to wait for those replicas before a replica gives up.
    pub bootstrap_wait_seconds: u64,
}

impl Default for EtcdPublishSettings {
    fn default() -> Self {
        Self {
            lease_seconds: 10,
            plan: true,
            bootstrap_expect: 0,
            bootstrap_wait_seconds: 300,
        }
    }
}

impl EtcdPublishSettings {
    /// Checks what can be checked locally. `advertises` and `joins`: whether `advertise` and `join` are set.
    pub(super) fn validate(
        &self,
        has_etcd: bool,
        advertises: bool,
        joins: bool,
    ) -> Result<(), BrokenRule> {
        let seconds = LEASE_SECONDS_MIN..=LEASE_SECONDS_MAX;
        let is_within = seconds.contains(&self.lease_seconds);
        require(is_within, "etcd_publish.lease_seconds", || {
            format!("must be from {LEASE_SECONDS_MIN} to {LEASE_SECONDS_MAX} (LEASE_SECONDS_MAX)")
        })?;
        if self.bootstrap_expect == 0 {
            return Ok(());
        }
        let key = "etcd_publish.bootstrap_expect";
        require(self.bootstrap_expect <= PEERS_MAX, key, || {
            format!("must be at most {PEERS_MAX} (PEERS_MAX)")
        })?;
        require(has_etcd, key, || {
            "requires etcd: set `etcd.endpoints`".to_owned()
        })?;
        require(!joins, key, || {
            "must not be set together with `join`: a joining replica bootstraps no group".to_owned()
        })?;
        require(advertises, "advertise", || {
            "must be set with `etcd_publish.bootstrap_expect`: the other replicas read the address from etcd".to_owned()
        })?;
        require(
            self.bootstrap_wait_seconds > 0,
            "etcd_publish.bootstrap_wait_seconds",
            || "must not be 0".to_owned(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_setting_is_named() {
        let broken = |has_etcd, advertises, edit: fn(&mut EtcdPublishSettings)| {
            let mut settings = EtcdPublishSettings::default();
            edit(&mut settings);
            let found = settings.validate(has_etcd, advertises, false).err();
            found.map(|it| it.key)
        };
        let expect = Some("etcd_publish.bootstrap_expect".to_owned());
        assert_eq!(broken(false, false, |_| {}), None);
        assert_eq!(broken(true, true, |it| it.bootstrap_expect = 3), None);
        assert_eq!(
            broken(true, false, |it| it.bootstrap_expect = 3),
            Some("advertise".to_owned())
        );
        for (has_etcd, joins, count) in [(false, false, 3), (true, true, 3), (true, false, 10)] {
            let settings = EtcdPublishSettings {
                bootstrap_expect: count,
                ..EtcdPublishSettings::default()
            };
            let found = settings.validate(has_etcd, true, joins).err();
            assert_eq!(found.map(|it| it.key), expect);
        }
        assert_eq!(
            broken(true, true, |it| it.lease_seconds = 1),
            Some("etcd_publish.lease_seconds".to_owned())
        );
    }
}
