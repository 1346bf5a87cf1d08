//! What a replica says in etcd.

use muster_service::settings::BrokenRule;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{PEERS_MAX, require};

/// Seconds of the shortest lease: etcd grants none below its election timeout.
const LEASE_SECONDS_MIN: u64 = 2;
/// Seconds of the longest: so long a replica that died is told of.
const LEASE_SECONDS_MAX: u64 = 3_600;

/// What a replica says in etcd, and how a new group is founded through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EtcdPublishSettings {
    /// Seconds after which etcd forgets a replica that has died, and the leader.
    pub lease_seconds: u64,
    /// Whether what runs where is mirrored to keys.
    pub plan: bool,
    /// Replicas that found a new group, and find each other in etcd: `peers` does not count then, and `advertise` must say how this one
    /// is reached. 0: groups are founded by `peers`.
    pub bootstrap_expect: usize,
    /// Seconds that they are waited for before a replica gives up.
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
    /// Checks what can be checked before anybody is asked.
    pub(super) fn validate(
        &self,
        has_etcd: bool,
        (advertises, joins): (bool, bool),
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
            "counts only with etcd: set `etcd.endpoints`".to_owned()
        })?;
        require(!joins, key, || {
            "must not be set where `join` is: a replica that joins founds nothing".to_owned()
        })?;
        require(advertises, "advertise", || {
            "must be set with `etcd_publish.bootstrap_expect`: the others read in etcd how this replica is reached".to_owned()
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
        let broken = |has_etcd, given, edit: fn(&mut EtcdPublishSettings)| {
            let mut settings = EtcdPublishSettings::default();
            edit(&mut settings);
            settings.validate(has_etcd, given).err().map(|it| it.key)
        };
        let expect = Some("etcd_publish.bootstrap_expect".to_owned());
        assert_eq!(broken(false, (false, false), |_| {}), None);
        assert_eq!(
            broken(true, (true, false), |it| it.bootstrap_expect = 3),
            None
        );
        assert_eq!(
            broken(true, (false, false), |it| it.bootstrap_expect = 3),
            Some("advertise".to_owned())
        );
        for (has_etcd, joins, count) in [(false, false, 3), (true, true, 3), (true, false, 10)] {
            let settings = EtcdPublishSettings {
                bootstrap_expect: count,
                ..EtcdPublishSettings::default()
            };
            let found = settings.validate(has_etcd, (true, joins)).err();
            assert_eq!(found.map(|it| it.key), expect);
        }
        assert_eq!(
            broken(true, (true, false), |it| it.lease_seconds = 1),
            Some("etcd_publish.lease_seconds".to_owned())
        );
    }
}
