//! Disaster recovery: the record of a state carried into a new group of replicas, from a backup or from the
//! disk of a source replica after the majority was lost.
//!
//! The old group may have decided more than the state contains. Three consequences are derived from one
//! record: every fencing number continues far above all that the old group can have assigned; every watcher
//! has to list again; and no job that the old group knew starts anything new before tasks of it that may
//! still run somewhere have lost their lease.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::command::ReplicaRecord;
use muster_model::ids::{HostId, ReplicaId, Revision};
use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

use crate::state::{EventGaps, EventLog, Job, Replicas, State};

/// More revisions per millisecond than any group commits on average over its life: no group can be above this
/// many for each millisecond since 1970. New groups are founded at or above this, so the group founded last
/// is above all others, including those that continued earlier from the same state.
const REVISIONS_PER_MS: u64 = 20;
/// Revisions skipped if the state is ahead of the wall clock: more than an old group can have committed
/// since. At 20,000 commands a second without a pause it would take 1.7 years.
const REVISIONS_SKIPPED: u64 = 1 << 40;
/// Interval at which the planner looks again while jobs are held back, in milliseconds.
pub(crate) const HELD_LOOK_MS: u64 = 1_000;

/// Record of a state carried into a new group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// Newest revision carried over: later decisions of the old group are unknown.
    pub origin: Revision,
    /// Upper bound of all revisions that the old group can have assigned.
    pub floor: Revision,
    /// Hold on jobs of the old group; `None` before the first leader of the new group.
    pub hold: Option<RecoveryHold>,
}

/// Interval in which tasks of unknown attempts may still have a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryHold {
    /// Start of the new group's first leader: the old group acknowledges no heartbeat from here on.
    pub began_at: TimeMs,
    /// End of the hold for all jobs.
    pub over_at: TimeMs,
}

impl State {
    /// Carries the state into a new group at the wall-clock time `now`; the state's own time may be ahead of
    /// it and is not changed. `former` are the members of the old group: none of their ids is assigned again.
    pub fn recover(&mut self, former: &[ReplicaRecord], now: TimeMs) {
        let origin = self.revision;
        let floor = floor_above(origin, now);
        self.revision = floor;
        self.recovery = Some(Recovery {
            origin,
            floor,
            hold: None,
        });
        // Watchers of the old group may have seen revisions that are unknown here: all must list again.
        self.events = EventLog::restore(floor, EventGaps::default(), Vec::new());
        let hosts: Vec<HostId> = self.hosts.keys().copied().collect();
        for id in hosts {
            // Any revision of the old group that a worker acts on is outdated.
            if let Some(host) = self.hosts.get_mut(&id) {
                Arc::make_mut(host).desired_revision = floor;
            }
        }
        let mut present: BTreeMap<ReplicaId, ReplicaRecord> = BTreeMap::new();
        for replica in self.replicas.present.iter().chain(former) {
            present.insert(replica.id, replica.clone());
        }
        let newest = present.keys().next_back().copied().unwrap_or_default();
        self.replicas = Arc::new(Replicas {
            highest: self.replicas.highest.max(newest),
            present: present.into_values().collect(),
        });
    }

    /// Returns the time before which nothing new of a job starts, because unknown tasks of it may run: its
    /// lease, counted from the new group's first leader. In the past for any other job.
    #[must_use]
    pub fn held_until(&self, job: &Job) -> TimeMs {
        let Some(recovery) = &self.recovery else {
            return TimeMs::default();
        };
        let hold = recovery
            .hold
            .filter(|_| job.id.get() <= recovery.floor.get());
        hold.map_or(TimeMs::default(), |hold| {
            hold.began_at.after(job.spec.partition_grace_ms)
        })
    }

    /// Returns when the planner should look again at held jobs; `None` if none is held any more.
    pub fn held_look_at(&self, now: TimeMs) -> Option<TimeMs> {
        let over_at = self.recovery?.hold?.over_at;
        (now < over_at).then(|| now.after(HELD_LOOK_MS).min(over_at))
    }
}

/// Returns a revision above all that any group can have assigned by now.
fn floor_above(origin: Revision, now: TimeMs) -> Revision {
    let by_time = now.0.saturating_mul(REVISIONS_PER_MS);
    let floor = if by_time > origin.get() {
        by_time
    } else {
        origin.get().saturating_add(REVISIONS_SKIPPED)
    };
    Revision(floor)
}
