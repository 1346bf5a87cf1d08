//! Settled events: those that are not among the newest ones and may be dropped next, by owner. Derived.

use std::collections::BTreeMap;

use imbl::{OrdMap, OrdSet};
use muster_model::event::Event;
use muster_model::ids::{JobId, Revision};

/// Owner of an event: a job, or the cluster.
pub(crate) type Owner = Option<JobId>;

/// Events that are not among the newest ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::state) struct SettledEvents {
    /// Revisions with settled events, by owner.
    revisions: OrdSet<(Owner, Revision)>,
    /// Number of settled events by owner; no entry is 0.
    counts: OrdMap<Owner, usize>,
    /// Owners with more than their share, by count.
    over: OrdSet<(usize, Owner)>,
}

impl SettledEvents {
    /// Adds the events of a revision that are no longer among the newest.
    pub(in crate::state) fn add(&mut self, revision: Revision, events: &[Event], share: usize) {
        for (owner, count) in counts(events) {
            self.revisions.insert((owner, revision));
            let before = self.counts.get(&owner).copied().unwrap_or(0);
            self.change(owner, before, before + count, share);
        }
    }

    /// Removes the dropped events of a revision.
    pub(in crate::state) fn remove(&mut self, revision: Revision, events: &[Event], share: usize) {
        for (owner, count) in counts(events) {
            if self.revisions.remove(&(owner, revision)).is_some() {
                let before = self.counts.get(&owner).copied().unwrap_or(0);
                self.change(owner, before, before.saturating_sub(count), share);
            }
        }
    }

    fn change(&mut self, owner: Owner, before: usize, after: usize, share: usize) {
        if before > share {
            self.over.remove(&(before, owner));
        }
        if after > share {
            self.over.insert((after, owner));
        }
        if after == 0 {
            self.counts.remove(&owner);
        } else {
            self.counts.insert(owner, after);
        }
    }

    /// Returns the owner with the most settled events, if that is more than a share, and its oldest revision.
    pub(in crate::state) fn oldest_of_greatest(&self) -> Option<(Owner, Revision)> {
        let (_, owner) = *self.over.get_max()?;
        let first = (owner, Revision::default());
        let oldest = self.revisions.range(first..).next()?;
        Some(*oldest)
    }
}

fn counts(events: &[Event]) -> BTreeMap<Owner, usize> {
    let mut counts = BTreeMap::new();
    for event in events {
        *counts.entry(event.kind.job()).or_default() += 1;
    }
    counts
}
