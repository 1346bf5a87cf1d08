//! Names of keys.

/// Default prefix of all keys; the cluster's name follows.
const ROOT: &str = "/muster";

/// Keys of one cluster, described in docs/etcd.md.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Ends in `/`.
    prefix: String,
}

impl Keys {
    /// Keys below `prefix`, or below `/muster/<cluster>/` if none is given.
    #[must_use]
    pub fn new(prefix: Option<&str>, cluster_id: &str) -> Self {
        let prefix = match prefix {
            Some(prefix) => format!("{}/", prefix.trim_end_matches('/')),
            None => format!("{ROOT}/{cluster_id}/"),
        };
        Self { prefix }
    }

    /// Prefix of all keys.
    #[must_use]
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Prefix of the replicas' keys.
    #[must_use]
    pub fn replicas(&self) -> String {
        format!("{}replicas/", self.prefix)
    }

    /// Key of one replica.
    #[must_use]
    pub fn replica(&self, id: u64) -> String {
        format!("{}replicas/{id}", self.prefix)
    }

    /// Key of the leader.
    #[must_use]
    pub fn leader(&self) -> String {
        format!("{}leader", self.prefix)
    }

    /// Key of the newest leader's epoch, which outlives the leader's key.
    #[must_use]
    pub fn epoch(&self) -> String {
        format!("{}epoch", self.prefix)
    }

    /// Key with the members that bootstrap, or bootstrapped, the cluster.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        format!("{}bootstrap", self.prefix)
    }

    /// Prefix of the plan's keys.
    #[must_use]
    pub fn plan(&self) -> String {
        format!("{}plan/", self.prefix)
    }

    /// Key of the resources held by one unit of a job.
    #[must_use]
    pub fn unit(&self, job: u64, unit: u32) -> String {
        format!("{}plan/{job}/{unit}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_match_the_documentation() {
        let keys = Keys::new(None, "lab");
        assert_eq!(keys.replica(2), "/muster/lab/replicas/2");
        assert_eq!(keys.leader(), "/muster/lab/leader");
        assert_eq!(keys.epoch(), "/muster/lab/epoch");
        assert_eq!(keys.bootstrap(), "/muster/lab/bootstrap");
        assert_eq!(keys.unit(7, 3), "/muster/lab/plan/7/3");
        assert!(keys.unit(7, 3).starts_with(&keys.plan()));
        for prefix in ["/site/gpu", "/site/gpu/"] {
            let keys = Keys::new(Some(prefix), "lab");
            assert_eq!(keys.leader(), "/site/gpu/leader");
        }
    }
}
