//! Recent events, kept in the replicated state so that a watch resumes on any replica.

use std::sync::Arc;

use imbl::OrdMap;

use crate::event::Event;
use crate::ids::Revision;
use crate::limits;

/// Events by revision, oldest dropped first, never a part of a revision.
#[derive(Clone, Debug, Default)]
pub struct EventLog {
    by_revision: OrdMap<Revision, Arc<[Event]>>,
    count: usize,
    /// Every revision up to this one has been dropped (or had no events).
    compacted: Revision,
}

/// The asked-for events are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("events up to revision {compacted} are compacted; start again from a fresh list")]
pub struct Compacted {
    /// Newest dropped revision.
    pub compacted: Revision,
}

impl EventLog {
    /// Keeps the events of one revision and drops the oldest ones over `EVENTS_KEPT_MAX`.
    pub fn push(&mut self, revision: Revision, events: Arc<[Event]>) {
        if events.is_empty() {
            return;
        }
        self.count += events.len();
        self.by_revision.insert(revision, events);
        while self.count > limits::EVENTS_KEPT_MAX && self.by_revision.len() > 1 {
            let Some((oldest, _)) = self.by_revision.get_min() else {
                break;
            };
            let oldest = *oldest;
            if let Some(dropped) = self.by_revision.remove(&oldest) {
                self.count -= dropped.len();
            }
            self.compacted = oldest;
        }
    }

    /// The events after `revision`, one slice per revision, oldest first.
    ///
    /// # Errors
    /// [`Compacted`] if some of them were dropped.
    pub fn after(
        &self,
        revision: Revision,
    ) -> Result<impl Iterator<Item = (Revision, &Arc<[Event]>)>, Compacted> {
        if revision < self.compacted {
            return Err(Compacted {
                compacted: self.compacted,
            });
        }
        Ok(self
            .by_revision
            .range(revision.next()..)
            .map(|(at, events)| (*at, events)))
    }

    /// Newest dropped revision; 0 if none was.
    #[must_use]
    pub const fn compacted(&self) -> Revision {
        self.compacted
    }

    /// Newest revision with kept events.
    #[must_use]
    pub fn newest(&self) -> Option<Revision> {
        self.by_revision.get_max().map(|(revision, _)| *revision)
    }

    /// All kept events, one slice per revision, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = (Revision, &Arc<[Event]>)> {
        self.by_revision
            .iter()
            .map(|(revision, events)| (*revision, events))
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
    pub fn restore(compacted: Revision, revisions: Vec<(Revision, Arc<[Event]>)>) -> Self {
        let count = revisions.iter().map(|(_, events)| events.len()).sum();
        Self {
            by_revision: revisions.into_iter().collect(),
            count,
            compacted,
        }
    }
}
