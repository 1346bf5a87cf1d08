//! What a state remembers of having been carried into a new group of replicas: from a backup, or from the disk of a
//! replica that survived the loss of the majority.
//!
//! The old group may have decided more than the state knows. Three things follow, and all are derived from one record:
//! every number that fences something goes on far above all that the old group can have given; whoever watches has to
//! list again; and no job that the old group knew begins anything new before whatever else of it may run somewhere has
//! lost its lease.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::command::ReplicaRecord;
use muster_model::ids::{HostId, ReplicaId, Revision};
use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

use crate::state::{EventLog, Job, Losses, Replicas, State};

/// More revisions than any group commits in a millisecond, on average over all its life: no group can be above this many for each
/// millisecond since 1970. From here on no group is founded lower, so whichever was founded last is above all others, also above
/// those that went on from the same state before it.
const REVISIONS_PER_MS: u64 = 20;
/// Revisions that are skipped where the clock says that the state is of the future: more than an old group can have committed
/// since. At 20,000 commands a second without a pause it would take 1.7 years.
const REVISIONS_SKIPPED: u64 = 1 << 40;
/// While jobs are held back, the planner looks again this often, in milliseconds.
pub(crate) const HELD_LOOK_MS: u64 = 1_000;

/// That the state was carried into a new group, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refounding {
    /// Newest revision that was carried over: what the old group decided later is unknown.
    pub origin: Revision,
    /// All that the old group can have decided has a lower revision, or this one.
    pub floor: Revision,
    /// How long jobs of before are held back; none before the first leader of the new group.
    pub hold: Option<Hold>,
}

/// The time in which tasks of attempts that nobody remembers may still have a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hold {
    /// The new group's first leader began: the old group acknowledges no beat from here on.
    pub began_at: TimeMs,
    /// No job is held back any more from then on.
    pub over_at: TimeMs,
}

impl State {
    /// Carries the state into a new group, at this time by the wall clock: the state's own time may be ahead of it, and is the same
    /// whenever this is done. `former` are the members of the old one: none of their ids is given again.
    pub fn refound(&mut self, former: &[ReplicaRecord], now: TimeMs) {
        let origin = self.revision;
        let floor = floor_above(origin, now);
        self.revision = floor;
        self.refounding = Some(Refounding {
            origin,
            floor,
            hold: None,
        });
        // Who watched the old group may have seen what is unknown here: everybody lists again.
        self.events = EventLog::restore(floor, Losses::default(), Vec::new());
        let hosts: Vec<HostId> = self.hosts.keys().copied().collect();
        for id in hosts {
            // Whatever revision of the old group a worker works on, it is behind.
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

    /// Until when nothing new of a job begins, because tasks of it that nobody remembers may run: the time of its lease,
    /// counted from the new group's first leader. In the past for any other job.
    #[must_use]
    pub fn held_until(&self, job: &Job) -> TimeMs {
        let Some(refounding) = &self.refounding else {
            return TimeMs::default();
        };
        let hold = refounding
            .hold
            .filter(|_| job.id.get() <= refounding.floor.get());
        hold.map_or(TimeMs::default(), |hold| {
            hold.began_at.after(job.spec.partition_grace_ms)
        })
    }

    /// When the planner should look again at jobs that are held back; none if no job is any more.
    pub fn held_look_at(&self, now: TimeMs) -> Option<TimeMs> {
        let over_at = self.refounding?.hold?.over_at;
        (now < over_at).then(|| now.after(HELD_LOOK_MS).min(over_at))
    }
}

/// A revision above all that any group can have given by now.
fn floor_above(origin: Revision, now: TimeMs) -> Revision {
    let by_time = now.0.saturating_mul(REVISIONS_PER_MS);
    let floor = if by_time > origin.get() {
        by_time
    } else {
        origin.get().saturating_add(REVISIONS_SKIPPED)
    };
    Revision(floor)
}
