//! One watcher's end of the hub.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use muster_engine::state::EventLog;
use muster_model::event::Event;
use muster_model::ids::Revision;
use tokio::sync::mpsc;

use crate::watch_hub::filter::WatchFilter;

/// Revisions read from the log at a time while a watch catches up.
const CATCH_UP_REVISIONS: usize = 256;

/// Item of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// All events of one revision.
    Events(Revision, Arc<[Event]>),
    /// Every event up to here was delivered.
    Bookmark(Revision),
}

/// Reason why a watch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEnd {
    /// The watcher did not keep up.
    TooSlow,
    /// The replica stops.
    Stopped,
}

/// One watch: first the log as of its start, then the items of the pump.
#[derive(Debug)]
pub struct Subscription {
    filter: WatchFilter,
    /// Everything up to here was delivered.
    position: Revision,
    log: Option<EventLog>,
    caught_up: VecDeque<Delivery>,
    /// The pump's position when the watch was joined to it.
    joined_at: Revision,
    live: mpsc::Receiver<Delivery>,
    is_too_slow: Arc<AtomicBool>,
}

impl Subscription {
    pub(super) fn new(
        filter: WatchFilter,
        from: Revision,
        joined_at: Revision,
        log: EventLog,
        live: mpsc::Receiver<Delivery>,
        is_too_slow: Arc<AtomicBool>,
    ) -> Self {
        Self {
            filter,
            position: from,
            log: Some(log),
            caught_up: VecDeque::new(),
            joined_at,
            live,
            is_too_slow,
        }
    }

    /// The next revision with events that match, or a bookmark.
    ///
    /// # Errors
    /// The reason why the watch ended.
    pub async fn next(&mut self) -> Result<(Revision, Vec<Event>), WatchEnd> {
        loop {
            if let Some(delivery) = self.catch_up() {
                if let Some(matching) = self.matching(delivery) {
                    return Ok(matching);
                }
                continue;
            }
            match self.live.recv().await {
                Some(delivery) => {
                    if let Some(matching) = self.matching(delivery) {
                        return Ok(matching);
                    }
                }
                None if self.is_too_slow.load(Ordering::Acquire) => return Err(WatchEnd::TooSlow),
                None => return Err(WatchEnd::Stopped),
            }
        }
    }

    /// The next revision of the log, then a bookmark at its end, then nothing.
    fn catch_up(&mut self) -> Option<Delivery> {
        if let Some(delivery) = self.caught_up.pop_front() {
            return Some(delivery);
        }
        let log = self.log.as_ref()?;
        let upto = self.joined_at;
        // The log is a copy from the start of the watch and was checked to be complete: nothing can be
        // compacted meanwhile.
        let revisions = log.kept_after(self.position);
        self.caught_up = revisions
            .take_while(|(revision, _)| *revision <= upto)
            .take(CATCH_UP_REVISIONS)
            .map(|(revision, events)| Delivery::Events(revision, Arc::clone(events)))
            .collect();
        if self.caught_up.is_empty() {
            self.log = None;
            return Some(Delivery::Bookmark(self.position.max(upto)));
        }
        self.caught_up.pop_front()
    }

    fn matching(&mut self, delivery: Delivery) -> Option<(Revision, Vec<Event>)> {
        match delivery {
            Delivery::Bookmark(revision) => {
                self.position = self.position.max(revision);
                Some((self.position, Vec::new()))
            }
            // A client that comes from a replica that was ahead has received these.
            Delivery::Events(revision, _) if revision <= self.position => None,
            Delivery::Events(revision, events) => {
                self.position = revision;
                let matching: Vec<Event> = events
                    .iter()
                    .filter(|event| self.filter.matches(event))
                    .cloned()
                    .collect();
                (!matching.is_empty()).then_some((revision, matching))
            }
        }
    }

    /// Everything up to here was delivered: the revision to resume from.
    #[must_use]
    pub const fn position(&self) -> Revision {
        self.position
    }
}
