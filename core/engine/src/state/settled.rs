//! Which of the kept events may be dropped next: those that are not among the newest ones, by whose they are. Derived.

use std::collections::BTreeMap;

use imbl::{OrdMap, OrdSet};
use muster_model::event::Event;
use muster_model::ids::{JobId, Revision};

/// Whose an event is: a job's, or the cluster's.
pub(crate) type Owner = Option<JobId>;

/// Events that are not among the newest ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    /// Revisions with such events, by whose they are.
    revisions: OrdSet<(Owner, Revision)>,
    /// How many each has; no entry is 0.
    counts: OrdMap<Owner, usize>,
    /// Those that have more than their share, by how many they have.
    over: OrdSet<(usize, Owner)>,
}

impl Settled {
    /// The events of a revision are not among the newest ones any more.
    pub(super) fn add(&mut self, revision: Revision, events: &[Event], share: usize) {
        for (owner, count) in counts(events) {
            self.revisions.insert((owner, revision));
            let before = self.counts.get(&owner).copied().unwrap_or(0);
            self.change(owner, (before, before + count), share);
        }
    }

    /// The events of a revision are dropped.
    pub(super) fn remove(&mut self, revision: Revision, events: &[Event], share: usize) {
        for (owner, count) in counts(events) {
            if self.revisions.remove(&(owner, revision)).is_some() {
                let before = self.counts.get(&owner).copied().unwrap_or(0);
                self.change(owner, (before, before.saturating_sub(count)), share);
            }
        }
    }

    fn change(&mut self, owner: Owner, (before, after): (usize, usize), share: usize) {
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

    /// Who has most, if that is more than a share, and the oldest revision with an event of it.
    pub(super) fn oldest_of_greatest(&self) -> Option<(Owner, Revision)> {
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
