//! Recent events, kept in the replicated state so that a watch resumes on any replica.
//!
//! There are `EVENTS_KEPT_MAX`. The newest `EVENTS_RECENT_MAX` of them are kept whoever's they are, so that a watch of everything
//! resumes. Of the others, who has more than a share loses its oldest first: one huge array does not take the stories of all other jobs
//! with it. What a job has lost is always the beginning of its story, and the log knows up to where.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::{OrdMap, OrdSet};
use muster_model::event::Event;
use muster_model::ids::{JobId, Revision};
use muster_model::limits;
use serde::Serialize;

use crate::state::settled::{Owner, Settled};

/// Events by revision; of one revision all those of a job are kept, or none.
#[derive(Clone, Debug, Default)]
pub struct EventLog {
    by_revision: OrdMap<Revision, Arc<[Event]>>,
    count: usize,
    /// Everything up to this revision has been dropped (or there was nothing).
    floor: Revision,
    /// The newest dropped revision of those who lost events above the floor.
    marks: OrdMap<Owner, Revision>,
    /// The same by revision.
    by_mark: OrdSet<(Revision, Owner)>,
    /// Up to this revision events are not among the newest ones.
    settled_up_to: Revision,
    /// Events that are not among the newest ones.
    recent: usize,
    settled: Settled,
    bounds: Bounds,
}

/// What of the events above the floor is not kept: what cannot be told from those that are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Losses {
    /// Up to this revision events are not among the newest ones, and may be dropped.
    pub settled_up_to: Revision,
    /// The newest dropped revision of each job (of the cluster itself for none) that lost events, ascending by job.
    pub marks: Vec<(Option<JobId>, Revision)>,
}

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bounds {
    kept: usize,
    recent: usize,
    share: usize,
    marks: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            kept: limits::EVENTS_KEPT_MAX,
            recent: limits::EVENTS_RECENT_MAX,
            share: limits::EVENTS_SHARE,
            marks: limits::EVENT_MARKS_MAX,
        }
    }
}

/// The asked-for events are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("events up to revision {compacted} are compacted; start again from a fresh list")]
pub struct Compacted {
    /// Newest dropped revision.
    pub compacted: Revision,
}

impl EventLog {
    /// Keeps the events of one revision and drops what is over `EVENTS_KEPT_MAX`: the oldest ones, or, if it `is_fair`, first the
    /// oldest ones of who has most of those that are not among the newest.
    pub fn push(&mut self, revision: Revision, events: Arc<[Event]>, is_fair: bool) {
        if events.is_empty() {
            return;
        }
        self.count += events.len();
        self.recent += events.len();
        self.by_revision.insert(revision, events);
        self.settle(self.settled_up_to);
        while self.count > self.bounds.kept && self.by_revision.len() > 1 {
            match self.settled.oldest_of_greatest() {
                Some((owner, oldest)) if is_fair => self.drop_of(owner, oldest),
                _ => self.drop_oldest(),
            }
        }
        while self.marks.len() > self.bounds.marks {
            self.drop_oldest();
        }
    }

    /// Counts as settled what is up to a revision, and what is not among the newest any more; the newest revision always is.
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

    /// Drops the oldest revision whole: nothing up to it is kept any more.
    fn drop_oldest(&mut self) {
        let oldest = self.by_revision.get_min().map(|(revision, _)| *revision);
        let removed = oldest.and_then(|oldest| self.by_revision.remove_with_key(&oldest));
        let Some((oldest, events)) = removed else {
            // Nothing is left to lose: no mark says more than the floor.
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

    /// Marks up to the floor say nothing more.
    fn forget_marks(&mut self) {
        while let Some((mark, owner)) = self.by_mark.get_min().copied() {
            if mark > self.floor {
                return;
            }
            self.by_mark.remove(&(mark, owner));
            self.marks.remove(&owner);
        }
    }

    /// Drops what one has in a revision, its oldest, and notes that it lost it.
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

    /// The events after `revision`, one slice per revision, oldest first.
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

    /// What is kept of the events after `revision`, one slice per revision, oldest first.
    pub fn kept_after(
        &self,
        revision: Revision,
    ) -> impl Iterator<Item = (Revision, &Arc<[Event]>)> {
        // Whoever watches says the revision, which may be the last one that there can be: nothing comes after it.
        let first = Revision(revision.get().saturating_add(1));
        let newer = self.by_revision.range(first..);
        newer.map(|(at, events)| (*at, events))
    }

    /// Whether all events after `revision` about these jobs are kept; about anything if none is named.
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

    /// The newest revision of which an event about a job may have been dropped; 0 if none was.
    #[must_use]
    pub fn compacted_of(&self, job: JobId) -> Revision {
        // A job's id is the revision of its submission: before that there was nothing to drop.
        let of_all = if job.get() > self.floor.get() {
            Revision::default()
        } else {
            self.floor
        };
        self.marks.get(&Some(job)).copied().unwrap_or(of_all)
    }

    /// Newest revision of which an event was dropped; 0 if none was.
    #[must_use]
    pub fn compacted(&self) -> Revision {
        let newest = self.by_mark.get_max().map(|(mark, _)| *mark);
        newest.unwrap_or(self.floor)
    }

    /// Every event up to this revision was dropped (or there was none).
    #[must_use]
    pub const fn floor(&self) -> Revision {
        self.floor
    }

    /// What of the events above the floor was dropped; nothing if no job lost any.
    #[must_use]
    pub fn losses(&self) -> Losses {
        if self.marks.is_empty() {
            // Up to where events are settled follows from those that are kept.
            return Losses::default();
        }
        let marks = self.marks.iter();
        Losses {
            settled_up_to: self.settled_up_to,
            marks: marks.map(|(owner, mark)| (*owner, *mark)).collect(),
        }
    }

    /// Whether what is derived is what it would be after a restart from a snapshot.
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

    /// Newest revision with kept events.
    #[must_use]
    pub fn newest(&self) -> Option<Revision> {
        self.by_revision.get_max().map(|(revision, _)| *revision)
    }

    /// All kept events, one slice per revision, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (Revision, &Arc<[Event]>)> {
        self.kept_after(Revision::default())
    }

    /// Number of kept events.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// True if none is kept.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Rebuilds a log from a snapshot's parts.
    #[must_use]
    pub fn restore(
        floor: Revision,
        losses: Losses,
        revisions: Vec<(Revision, Arc<[Event]>)>,
    ) -> Self {
        Self::restored(Bounds::default(), floor, losses, revisions)
    }

    fn restored(
        bounds: Bounds,
        floor: Revision,
        losses: Losses,
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
