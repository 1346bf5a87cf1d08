//! Checker for I3: no worker acts on an order older than one it has acted on, regardless of the sender.

use std::collections::BTreeMap;

use muster_model::ids::{LeadershipEpoch, Revision};

/// Newest order that each host acted on, across restarts of its agent.
#[derive(Clone, Debug, Default)]
pub struct OrderFencing {
    newest: BTreeMap<u32, Order>,
    obeyed: u64,
    found: Vec<StaleOrder>,
}

/// Position of an order: leadership and revision.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Order {
    leader: LeadershipEpoch,
    revision: Revision,
}

/// A host acted on an old order.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "host {host} acts on revision {revision} of leadership {leader} after revision {newest_revision} of \
     leadership {newest_leader}"
)]
pub struct StaleOrder {
    /// Number of the host.
    pub host: u32,
    /// Leadership of the order.
    pub leader: LeadershipEpoch,
    /// Its revision.
    pub revision: Revision,
    /// The newest leadership that the host had acted on.
    pub newest_leader: LeadershipEpoch,
    /// The newest revision that it had acted on.
    pub newest_revision: Revision,
}

impl OrderFencing {
    /// Records that a host's agent carried out an order.
    pub fn obeyed(&mut self, host: u32, leader: LeadershipEpoch, revision: Revision) {
        self.obeyed += 1;
        let newest = self.newest.entry(host).or_default();
        if leader < newest.leader || revision < newest.revision {
            self.found.push(StaleOrder {
                host,
                leader,
                revision,
                newest_leader: newest.leader,
                newest_revision: newest.revision,
            });
        }
        newest.leader = newest.leader.max(leader);
        newest.revision = newest.revision.max(revision);
    }

    /// Number of orders carried out.
    #[must_use]
    pub const fn orders(&self) -> u64 {
        self.obeyed
    }

    /// Violations found so far, in order.
    #[must_use]
    pub fn found(&self) -> &[StaleOrder] {
        &self.found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_leadership_and_an_older_revision_are_noticed() {
        let mut obedience = OrderFencing::default();
        obedience.obeyed(1, LeadershipEpoch(10), Revision(20));
        obedience.obeyed(1, LeadershipEpoch(30), Revision(31));
        obedience.obeyed(2, LeadershipEpoch(10), Revision(25));
        assert_eq!(obedience.found(), []);
        obedience.obeyed(1, LeadershipEpoch(10), Revision(29));
        obedience.obeyed(2, LeadershipEpoch(10), Revision(24));
        let hosts: Vec<u32> = obedience.found().iter().map(|stale| stale.host).collect();
        assert_eq!(hosts, [1, 2]);
    }
}
