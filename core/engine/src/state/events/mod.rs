//! Recent events, kept in the replicated state so that a watch can resume on any replica.
//!
//! At most `EVENTS_KEPT_MAX` events are kept. The newest `EVENTS_RECENT_MAX` are kept regardless of their
//! owner, so that a watch of everything resumes. Among older events, the owner with the most events above its
//! share loses its oldest first: one huge array does not evict the history of all other jobs. A job always
//! loses the oldest part of its history, and the log records up to which revision.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use muster_model::event::Event;
use muster_model::ids::{JobId, Revision};
use muster_model::limits;
use serde::Serialize;

use crate::state::index::settled::{Owner, SettledEvents};

/// Events by revision; the events of one job in one revision are kept or dropped together.
#[derive(Clone, Debug, Default)]
pub struct EventLog {
    by_revision: OrdMap<Revision, Arc<[Event]>>,
    count: usize,
    /// Everything up to this revision has been dropped (or never existed).
    floor: Revision,
    /// The newest dropped revision of owners that lost events above the floor.
    marks: OrdMap<Owner, Revision>,
    /// `marks` by revision.
    by_mark: OrdSet<(Revision, Owner)>,
    /// Up to this revision, events are not among the newest ones.
    settled_up_to: Revision,
    /// Events that are not among the newest ones.
    recent: usize,
    settled: SettledEvents,
    bounds: RetentionLimits,
}

/// Gaps among the events above the floor; not derivable from the kept events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct EventGaps {
    /// Up to this revision, events are not among the newest ones and may be dropped.
    pub settled_up_to: Revision,
    /// The newest dropped revision of each job that lost events (`None`: the cluster itself), ascending by
    /// job.
    pub marks: Vec<(Option<JobId>, Revision)>,
}

impl PartialEq for EventLog {
    /// Whether the same events are kept, with the same gaps; all else follows from them.
    fn eq(&self, other: &Self) -> bool {
        self.floor == other.floor
            && self.losses() == other.losses()
            && self.by_revision == other.by_revision
    }
}

impl Eq for EventLog {}

/// Retention limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RetentionLimits {
    kept: usize,
    recent: usize,
    share: usize,
    marks: usize,
}

impl Default for RetentionLimits {
    fn default() -> Self {
        Self {
            kept: limits::EVENTS_KEPT_MAX,
            recent: limits::EVENTS_RECENT_MAX,
            share: limits::EVENTS_PER_JOB_SHARE,
            marks: limits::EVENT_MARKS_MAX,
        }
    }
}

/// The requested events have been dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("events up to revision {compacted} are compacted; start again from a fresh list")]
pub struct Compacted {
    /// Newest dropped revision.
    pub compacted: Revision,
}

impl EventLog {
    /// Keeps the events of one revision and drops events over `EVENTS_KEPT_MAX`: first the oldest ones of the
    /// owner with the most settled events.
    pub fn push(&mut self, revision: Revision, events: Arc<[Event]>) {
        if events.is_empty() {
            return;
        }
        self.count += events.len();
        self.recent += events.len();
        self.by_revision.insert(revision, events);
        self.settle(self.settled_up_to);
        while self.count > self.bounds.kept && self.by_revision.len() > 1 {
            match self.settled.oldest_of_greatest() {
                Some((owner, oldest)) => self.drop_of(owner, oldest),
                None => self.drop_oldest(),
            }
        }
        while self.marks.len() > self.bounds.marks {
            self.drop_oldest();
        }
    }

    /// Marks events up to a revision, and those no longer among the newest, as settled; the newest revision
    /// never is.
    fn settle(&mut self, up_to: Revision) {
        let mut newer = self
            .by_revision
            .range(self.settled_up_to.next()..)
            .peekable();
        while let Some((revision, events)) = newer.next() {
            let is_over = self.recent > self.bounds.recent && newer.peek().is_some();
            if *revision > up_to && !is_over {
                break;
            }
            self.settled_up_to = *revision;
            self.recent -= events.len();
            self.settled.add(*revision, events, self.bounds.share);
        }
        self.settled_up_to = self.settled_up_to.max(up_to);
    }

    /// Drops the oldest revision entirely and raises the floor to it.
    fn drop_oldest(&mut self) {
        let oldest = self.by_revision.get_min().map(|(revision, _)| *revision);
        let removed = oldest.and_then(|oldest| self.by_revision.remove_with_key(&oldest));
        let Some((oldest, events)) = removed else {
            // All events below are gone: marks up to here are subsumed by the floor.
            self.floor = self.compacted();
            self.forget_marks();
            return;
        };
        self.count -= events.len();
        if oldest > self.settled_up_to {
            self.settled_up_to = oldest;
            self.recent -= events.len();
        } else {
            self.settled.remove(oldest, &events, self.bounds.share);
        }
        self.floor = oldest;
        self.forget_marks();
    }

    /// Removes marks that the floor has passed.
    fn forget_marks(&mut self) {
        while let Some((mark, owner)) = self.by_mark.get_min().copied() {
            if mark > self.floor {
                return;
            }
            self.by_mark.remove(&(mark, owner));
            self.marks.remove(&owner);
        }
    }

    /// Drops the events of one owner in a revision, its oldest, and records the loss.
    fn drop_of(&mut self, owner: Owner, revision: Revision) {
        let Some(events) = self.by_revision.remove(&revision) else {
            return;
        };
        self.settled.remove(revision, &events, self.bounds.share);
        let others = events.iter().filter(|event| event.kind.job() != owner);
        let others: Arc<[Event]> = others.cloned().collect();
        self.count -= events.len() - others.len();
        if !others.is_empty() {
            self.settled.add(revision, &others, self.bounds.share);
            self.by_revision.insert(revision, others);
        }
        self.mark(owner, revision);
    }

    fn mark(&mut self, owner: Owner, revision: Revision) {
        if let Some(before) = self.marks.insert(owner, revision) {
            self.by_mark.remove(&(before, owner));
        }
        self.by_mark.insert((revision, owner));
    }

    /// Returns the events after `revision`, one slice per revision, oldest first.
    ///
    /// # Errors
    /// [`Compacted`] if some of them were dropped.
    pub fn after(
        &self,
        revision: Revision,
    ) -> Result<impl Iterator<Item = (Revision, &Arc<[Event]>)>, Compacted> {
        let compacted = self.compacted();
        if revision < compacted {
            return Err(Compacted { compacted });
        }
        Ok(self.kept_after(revision))
    }

    /// Returns the kept events after `revision`, one slice per revision, oldest first.
    pub fn kept_after(
        &self,
        revision: Revision,
    ) -> impl Iterator<Item = (Revision, &Arc<[Event]>)> {
        // The client supplies the revision, which may be the maximum: no revision follows it.
        let first = Revision(revision.get().saturating_add(1));
        let newer = self.by_revision.range(first..);
        newer.map(|(at, events)| (*at, events))
    }

    /// Checks that all events after `revision` about these jobs are kept; about everything if no job is
    /// given.
    ///
    /// # Errors
    /// [`Compacted`] if some of them were dropped.
    pub fn require_after(
        &self,
        revision: Revision,
        jobs: &BTreeSet<JobId>,
    ) -> Result<(), Compacted> {
        let compacted = if jobs.is_empty() {
            self.compacted()
        } else {
            let of_jobs = jobs.iter().map(|job| self.compacted_of(*job));
            of_jobs.max().unwrap_or_default()
        };
        if revision < compacted {
            return Err(Compacted { compacted });
        }
        Ok(())
    }

    /// Returns the newest revision of which an event of a job may have been dropped; 0 if none was.
    #[must_use]
    pub fn compacted_of(&self, job: JobId) -> Revision {
        // A job's id is the revision of its submission: it has no events before that.
        let of_all = if job.get() > self.floor.get() {
            Revision::default()
        } else {
            self.floor
        };
        self.marks.get(&Some(job)).copied().unwrap_or(of_all)
    }

    /// Returns the newest revision of which an event was dropped; 0 if none was.
    #[must_use]
    pub fn compacted(&self) -> Revision {
        let newest = self.by_mark.get_max().map(|(mark, _)| *mark);
        newest.unwrap_or(self.floor)
    }

    /// Returns the revision up to which every event was dropped (or none existed).
    #[must_use]
    pub const fn floor(&self) -> Revision {
        self.floor
    }

    /// Returns the gaps above the floor; empty if no job lost events.
    #[must_use]
    pub fn losses(&self) -> EventGaps {
        if self.marks.is_empty() {
            // Without gaps, the settled boundary follows from the kept events.
            return EventGaps::default();
        }
        let marks = self.marks.iter();
        EventGaps {
            settled_up_to: self.settled_up_to,
            marks: marks.map(|(owner, mark)| (*owner, *mark)).collect(),
        }
    }

    /// Whether derived fields equal those after a restore from a snapshot.
    #[must_use]
    pub fn is_as_restored(&self) -> bool {
        let revisions = self.iter().map(|(at, events)| (at, Arc::clone(events)));
        let restored = Self::restored(self.bounds, self.floor, self.losses(), revisions.collect());
        let Self {
            by_mark,
            settled_up_to,
            recent,
            settled,
            ..
        } = &restored;
        self.by_mark == *by_mark
            && self.settled_up_to == *settled_up_to
            && self.recent == *recent
            && self.settled == *settled
    }

    /// Returns the newest revision with kept events.
    #[must_use]
    pub fn newest(&self) -> Option<Revision> {
        self.by_revision.get_max().map(|(revision, _)| *revision)
    }

    /// Returns all kept events, one slice per revision, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (Revision, &Arc<[Event]>)> {
        self.kept_after(Revision::default())
    }

    /// Returns the number of kept events.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// True if no event is kept.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Rebuilds a log from the parts of a snapshot.
    #[must_use]
    pub fn restore(
        floor: Revision,
        losses: EventGaps,
        revisions: Vec<(Revision, Arc<[Event]>)>,
    ) -> Self {
        Self::restored(RetentionLimits::default(), floor, losses, revisions)
    }

    fn restored(
        bounds: RetentionLimits,
        floor: Revision,
        losses: EventGaps,
        revisions: Vec<(Revision, Arc<[Event]>)>,
    ) -> Self {
        let count = revisions.iter().map(|(_, events)| events.len()).sum();
        let mut log = Self {
            by_revision: revisions.into_iter().collect(),
            count,
            recent: count,
            floor,
            bounds,
            ..Self::default()
        };
        for (owner, mark) in losses.marks {
            log.mark(owner, mark);
        }
        log.settle(losses.settled_up_to);
        log
    }
}

#[cfg(test)]
mod tests;
