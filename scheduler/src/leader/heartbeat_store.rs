//! Heartbeat times replicated to one replica, which let a new leader continue to count
//! silence from where the old one stopped.
//!
//! In memory only; a restarted replica reports since when it remembers, and knows nothing older.

use std::collections::BTreeMap;

use muster_log::OLDEST_COMMAND_FORMAT;
use muster_model::ids::{HostId, LeadershipEpoch};
use muster_model::time::MonotonicMs;

/// Order of leaderships: a later one has a greater term, or the same term and a greater epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fence {
    /// Raft term of the leader.
    pub term: u64,
    /// Revision of its `LeadershipStarted`.
    pub epoch: LeadershipEpoch,
}

/// Push of a leader: the ages of the hosts' last heartbeats, at the time of sending.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeartbeatPush {
    /// Leadership of the sender.
    pub fence: Fence,
    /// Hosts with a heartbeat since the last push, with the age of it in milliseconds.
    pub last_heartbeat_age_ms: BTreeMap<HostId, u64>,
    /// Newest command format that all replicas read, as far as the leader knows.
    pub command_format: u8,
}

/// Stored heartbeat times of a replica, at the time of answering.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeartbeatReport {
    /// Reach of its memory in milliseconds: anything before may be forgotten.
    pub remembers_ms: u64,
    /// Stored hosts, with the age of their last heartbeat in milliseconds.
    pub last_heartbeat_age_ms: BTreeMap<HostId, u64>,
}

/// A later leadership is known here; the sender no longer leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a leadership of term {} (epoch {}) is known here; the sender's is over", known.term, known.epoch)]
pub struct Superseded {
    /// The newest leadership known.
    pub known: Fence,
}

/// Store of one replica.
#[derive(Clone, Debug)]
pub struct HeartbeatStore {
    began_at: MonotonicMs,
    fence: Fence,
    pushed_by: LeadershipEpoch,
    received_at: BTreeMap<HostId, MonotonicMs>,
    command_format: u8,
}

impl HeartbeatStore {
    /// An empty store that begins now.
    #[must_use]
    pub const fn new(now: MonotonicMs) -> Self {
        Self {
            began_at: now,
            fence: Fence {
                term: 0,
                epoch: LeadershipEpoch(0),
            },
            pushed_by: LeadershipEpoch(0),
            received_at: BTreeMap::new(),
            command_format: OLDEST_COMMAND_FORMAT,
        }
    }

    /// Newest command format that all replicas are known to read.
    #[must_use]
    pub const fn command_format(&self) -> u8 {
        self.command_format
    }

    /// Raises the command format that all replicas read; it never falls. Returns the resulting one.
    pub fn raise_command_format(&mut self, format: u8) -> u8 {
        self.command_format = self.command_format.max(format);
        self.command_format
    }

    /// Leadership of the last push; 0 if there was none.
    #[must_use]
    pub const fn last_pushed_by(&self) -> LeadershipEpoch {
        self.pushed_by
    }

    /// Stores a push. `own_term` is the newest Raft term this replica has taken part in: it is on disk, so it
    /// fences out an old leader even after a restart emptied this store.
    ///
    /// # Errors
    /// [`Superseded`] if a later leadership is known; nothing is stored then.
    pub fn push(
        &mut self,
        now: MonotonicMs,
        own_term: u64,
        push: &HeartbeatPush,
    ) -> Result<(), Superseded> {
        self.advance(own_term, push.fence)?;
        self.pushed_by = push.fence.epoch;
        self.raise_command_format(push.command_format);
        for (host, ago_ms) in &push.last_heartbeat_age_ms {
            // The clock starts further from zero than any age that matters.
            let received_at = MonotonicMs(now.0.saturating_sub(*ago_ms));
            let known = self.received_at.entry(*host).or_insert(received_at);
            *known = received_at.max(*known);
        }
        Ok(())
    }

    /// Reports everything to a new leader, and from then on refuses pushes of earlier leaders.
    ///
    /// # Errors
    /// [`Superseded`] if a later leadership than the asking one is known.
    pub fn report(
        &mut self,
        now: MonotonicMs,
        own_term: u64,
        asking: Fence,
    ) -> Result<HeartbeatReport, Superseded> {
        self.advance(own_term, asking)?;
        Ok(HeartbeatReport {
            remembers_ms: now.since(self.began_at),
            last_heartbeat_age_ms: self
                .received_at
                .iter()
                .map(|(host, received_at)| (*host, now.since(*received_at)))
                .collect(),
        })
    }

    fn advance(&mut self, own_term: u64, given: Fence) -> Result<(), Superseded> {
        if given < self.fence {
            return Err(Superseded { known: self.fence });
        }
        if given.term < own_term {
            let known = Fence {
                term: own_term,
                epoch: LeadershipEpoch(0),
            };
            return Err(Superseded { known });
        }
        self.fence = given;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn fence(term: u64, epoch: u64) -> Fence {
        Fence {
            term,
            epoch: LeadershipEpoch(epoch),
        }
    }

    fn push(fence: Fence, host: u32, ago_ms: u64) -> HeartbeatPush {
        HeartbeatPush {
            fence,
            last_heartbeat_age_ms: BTreeMap::from([(HostId(host), ago_ms)]),
            command_format: 0,
        }
    }

    #[test]
    fn a_report_adds_the_time_since_the_push_to_each_age() {
        let mut store = HeartbeatStore::new(MonotonicMs(1_000));
        assert_eq!(
            store.push(MonotonicMs(5_000), 1, &push(fence(1, 3), 7, 200)),
            Ok(())
        );
        assert_eq!(
            store.report(MonotonicMs(6_000), 2, fence(2, 9)),
            Ok(HeartbeatReport {
                remembers_ms: 5_000,
                last_heartbeat_age_ms: BTreeMap::from([(HostId(7), 1_200)]),
            })
        );
    }

    #[test]
    fn a_delayed_push_never_moves_a_heartbeat_time_backwards() {
        let mut store = HeartbeatStore::new(MonotonicMs(0));
        assert_eq!(
            store.push(MonotonicMs(9_000), 1, &push(fence(1, 3), 7, 0)),
            Ok(())
        );
        assert_eq!(
            store.push(MonotonicMs(9_100), 1, &push(fence(1, 3), 7, 4_000)),
            Ok(())
        );
        let report = store.report(MonotonicMs(9_100), 1, fence(1, 3));
        assert_eq!(
            report.map(|report| report.last_heartbeat_age_ms[&HostId(7)]),
            Ok(100)
        );
    }

    #[test]
    fn pushes_of_an_old_leader_are_refused_once_a_new_one_fetched_the_times() {
        let mut store = HeartbeatStore::new(MonotonicMs(0));
        assert!(store.report(MonotonicMs(10), 2, fence(2, 9)).is_ok());
        let refused = store.push(MonotonicMs(20), 2, &push(fence(1, 3), 7, 0));
        assert_eq!(refused, Err(Superseded { known: fence(2, 9) }));
    }

    #[test]
    fn pushes_of_an_old_leader_are_refused_by_the_term_on_disk_after_a_restart() {
        let mut store = HeartbeatStore::new(MonotonicMs(0));
        let refused = store.push(MonotonicMs(20), 2, &push(fence(1, 3), 7, 0));
        assert_eq!(refused, Err(Superseded { known: fence(2, 0) }));
    }
}
