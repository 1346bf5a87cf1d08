//! The pump and its subscribers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use metrics::{counter, gauge};
use muster_engine::state::{Compacted, State};
use muster_model::event::Event;
use muster_model::ids::{JobId, Revision};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use crate::metrics::names;
use crate::watch_hub::filter::WatchFilter;
use crate::watch_hub::subscription::{Delivery, Subscription};

/// Time between two bookmarks, in milliseconds.
const BOOKMARK_MS: u64 = 5_000;
/// Revisions pumped between two yields to other tasks of the runtime.
const REVISIONS_PER_YIELD: usize = 1_024;

/// Reason why a watch cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    /// Some of the events are no longer kept.
    #[error(transparent)]
    Compacted(#[from] Compacted),
    /// The limit of watches is reached.
    #[error("this replica serves its limit of {limit} watches (watches_max)")]
    Full {
        /// The limit.
        limit: usize,
    },
}

/// All watches of a replica.
#[derive(Debug)]
pub struct WatchHub {
    inner: Mutex<Inner>,
    watches_max: usize,
    buffer_revisions: usize,
}

#[derive(Debug, Default)]
struct Inner {
    /// Every event up to here was queued to all subscribers.
    pumped: Revision,
    next_id: u64,
    subscribers: BTreeMap<u64, Subscriber>,
    /// Subscribers that want every job.
    everything: BTreeSet<u64>,
    by_job: BTreeMap<JobId, BTreeSet<u64>>,
}

#[derive(Debug)]
struct Subscriber {
    jobs: BTreeSet<JobId>,
    queue: mpsc::Sender<Delivery>,
    is_too_slow: Arc<AtomicBool>,
}

impl WatchHub {
    /// A hub whose pump begins after `revision`.
    #[must_use]
    pub fn new(revision: Revision, watches_max: usize, buffer_revisions: usize) -> Self {
        let inner = Inner {
            pumped: revision,
            ..Inner::default()
        };
        Self {
            inner: Mutex::new(inner),
            watches_max,
            buffer_revisions,
        }
    }

    /// Begins a watch after `from`, or after the newest revision. `fork` reads the applied state while the
    /// pump is held, so that the log from which the watch catches up contains everything that the pump has
    /// passed.
    ///
    /// # Errors
    /// The reason why it cannot begin.
    pub fn subscribe(
        &self,
        fork: impl FnOnce() -> State,
        from: Option<Revision>,
        filter: WatchFilter,
    ) -> Result<Subscription, SubscribeError> {
        let mut inner = self.lock();
        let state = fork();
        inner.forget_closed();
        if inner.subscribers.len() >= self.watches_max {
            return Err(SubscribeError::Full {
                limit: self.watches_max,
            });
        }
        let from = from.unwrap_or(state.revision);
        // Checks only that the events are kept; they are read later.
        state.events.require_after(from, &filter.jobs)?;
        let (queue, live) = mpsc::channel(self.buffer_revisions);
        let is_too_slow = Arc::new(AtomicBool::new(false));
        let subscriber = Subscriber {
            jobs: filter.jobs.clone(),
            queue,
            is_too_slow: Arc::clone(&is_too_slow),
        };
        inner.insert(subscriber);
        let joined_at = inner.pumped;
        Ok(Subscription::new(
            filter,
            from,
            joined_at,
            state.events,
            live,
            is_too_slow,
        ))
    }

    /// Pumps until `stop` or until the replica is gone; `fork` reads the applied state.
    pub async fn run(
        &self,
        mut applied: watch::Receiver<u64>,
        fork: impl Fn() -> State,
        stop: CancellationToken,
    ) {
        let period = Duration::from_millis(BOOKMARK_MS);
        let mut bookmarks = interval_at(Instant::now() + period, period);
        bookmarks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                changed = applied.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    applied.borrow_and_update();
                    self.pump(&fork()).await;
                }
                _ = bookmarks.tick() => self.lock().bookmark(),
            }
        }
        // Dropping the queues ends the watches.
        *self.lock() = Inner::default();
    }

    /// Queues every event after the pump's position to the subscribers that match.
    pub(super) async fn pump(&self, state: &State) {
        let pumped = self.lock().pumped;
        if self.lock().skip_to(state.revision) {
            return;
        }
        let Ok(revisions) = state.events.after(pumped) else {
            // A snapshot was installed over more events than are kept: subscribers learn of the gap only by
            // being sent back to the log, which answers OUT_OF_RANGE.
            self.lock().restart(state.revision);
            return;
        };
        for (position, (revision, events)) in revisions.enumerate() {
            self.lock().publish(revision, events);
            if position % REVISIONS_PER_YIELD == REVISIONS_PER_YIELD - 1 {
                tokio::task::yield_now().await;
            }
        }
        self.lock().pumped = state.revision;
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn insert(&mut self, subscriber: Subscriber) {
        let id = self.next_id;
        self.next_id += 1;
        if subscriber.jobs.is_empty() {
            self.everything.insert(id);
        }
        for job in &subscriber.jobs {
            self.by_job.entry(*job).or_default().insert(id);
        }
        self.subscribers.insert(id, subscriber);
        self.count();
    }

    fn remove(&mut self, id: u64) {
        let Some(subscriber) = self.subscribers.remove(&id) else {
            return;
        };
        self.everything.remove(&id);
        for job in subscriber.jobs {
            if let Some(of_job) = self.by_job.get_mut(&job) {
                of_job.remove(&id);
                if of_job.is_empty() {
                    self.by_job.remove(&job);
                }
            }
        }
        self.count();
    }

    fn forget_closed(&mut self) {
        let closed: Vec<u64> = self
            .subscribers
            .iter()
            .filter(|(_, subscriber)| subscriber.queue.is_closed())
            .map(|(id, _)| *id)
            .collect();
        for id in closed {
            self.remove(id);
        }
    }

    /// Skips ahead if there are no subscribers.
    fn skip_to(&mut self, revision: Revision) -> bool {
        let is_alone = self.subscribers.is_empty();
        if is_alone {
            self.pumped = revision;
        }
        is_alone
    }

    fn publish(&mut self, revision: Revision, events: &Arc<[Event]>) {
        let mut interested = self.everything.clone();
        if !self.by_job.is_empty() {
            let jobs = events.iter().filter_map(|event| event.kind.job());
            interested.extend(jobs.filter_map(|job| self.by_job.get(&job)).flatten());
        }
        for id in interested {
            self.deliver(id, Delivery::Events(revision, Arc::clone(events)));
        }
        self.pumped = revision;
    }

    fn bookmark(&mut self) {
        self.forget_closed();
        let pumped = self.pumped;
        // A subscriber with queued events needs no bookmark.
        let idle: Vec<u64> = self
            .subscribers
            .iter()
            .filter(|(_, subscriber)| {
                subscriber.queue.capacity() == subscriber.queue.max_capacity()
            })
            .map(|(id, _)| *id)
            .collect();
        for id in idle {
            self.deliver(id, Delivery::Bookmark(pumped));
        }
    }

    fn deliver(&mut self, id: u64, delivery: Delivery) {
        let Some(subscriber) = self.subscribers.get(&id) else {
            return;
        };
        match subscriber.queue.try_send(delivery) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => self.drop_slow(id),
            Err(TrySendError::Closed(_)) => self.remove(id),
        }
    }

    fn drop_slow(&mut self, id: u64) {
        if let Some(subscriber) = self.subscribers.get(&id) {
            subscriber.is_too_slow.store(true, Ordering::Release);
            counter!(names::WATCHES_SLOW_TOTAL).increment(1);
        }
        self.remove(id);
    }

    fn restart(&mut self, revision: Revision) {
        let ids: Vec<u64> = self.subscribers.keys().copied().collect();
        for id in ids {
            self.drop_slow(id);
        }
        self.pumped = revision;
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a gauge is a floating-point number"
    )]
    fn count(&self) {
        gauge!(names::WATCHES).set(self.subscribers.len() as f64);
    }
}
