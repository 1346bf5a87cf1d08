//! Event observer: follows all events through every failover, and lets the demo wait for expected ones.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_client::{Client, WatchFilter, WatchUpdate};
use muster_model::event::{Event, EventKind};
use muster_model::ids::{JobId, Revision};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::demo::scoreboard::Scoreboard;
use crate::demo::timeline::{Timeline, Voice};

/// An event with its time of arrival.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Time of arrival.
    pub at: Instant,
    /// The event.
    pub event: Event,
}

/// All observed events.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    events: Mutex<Vec<Seen>>,
    training: Mutex<Option<JobId>>,
    arrived: Notify,
    /// Counts derived from the events.
    pub board: Mutex<Scoreboard>,
}

/// An expected event did not happen.
#[derive(Debug, thiserror::Error)]
#[error("{what} did not happen within {} s", patience.as_secs())]
pub struct Missed {
    what: String,
    patience: Duration,
}

impl Observed {
    /// Number of events so far: a position to wait from.
    #[must_use]
    pub(crate) fn here(&self) -> usize {
        lock(&self.events).len()
    }

    /// Sets the training job, whose events go to the timeline.
    pub(crate) fn follow(&self, training: JobId) {
        *lock(&self.training) = Some(training);
    }

    /// Returns the first event from position `from` on for which `expected` holds.
    ///
    /// # Errors
    /// [`Missed`] after `patience`.
    pub(crate) async fn wait_for(
        &self,
        what: &str,
        from: usize,
        patience: Duration,
        expected: impl Fn(&Event) -> bool,
    ) -> Result<Seen, Missed> {
        let search = async {
            let mut position = from;
            loop {
                let arrived = self.arrived.notified();
                tokio::pin!(arrived);
                arrived.as_mut().enable();
                {
                    let events = lock(&self.events);
                    if let Some(found) =
                        events[position..].iter().find(|seen| expected(&seen.event))
                    {
                        return found.clone();
                    }
                    position = events.len();
                }
                arrived.await;
            }
        };
        tokio::time::timeout(patience, search)
            .await
            .map_err(|_| Missed {
                what: what.to_owned(),
                patience,
            })
    }

    /// Whether `wanted` holds for an event from position `from` on.
    pub(crate) fn any_since(&self, from: usize, wanted: impl Fn(&Event) -> bool) -> bool {
        lock(&self.events)[from..]
            .iter()
            .any(|seen| wanted(&seen.event))
    }

    /// The first event from position `from` on for which `wanted` holds, if it has arrived.
    #[must_use]
    pub(crate) fn first_since(&self, from: usize, wanted: impl Fn(&Event) -> bool) -> Option<Seen> {
        let events = lock(&self.events);
        let found = events[from..].iter().find(|seen| wanted(&seen.event));
        found.cloned()
    }

    /// The newest event before `end` for which `wanted` holds.
    #[must_use]
    pub(crate) fn newest_before(
        &self,
        end: Instant,
        wanted: impl Fn(&Event) -> bool,
    ) -> Option<Seen> {
        let events = lock(&self.events);
        let found = events
            .iter()
            .rev()
            .find(|seen| seen.at < end && wanted(&seen.event));
        found.cloned()
    }

    fn take(&self, event: Event, timeline: Timeline) {
        timeline.tell(&event, *lock(&self.training));
        lock(&self.board).observe(&event);
        lock(&self.events).push(Seen {
            at: Instant::now(),
            event,
        });
        self.arrived.notify_waiters();
    }
}

/// Watches all events from the first revision on, until aborted.
#[must_use]
pub(crate) fn observe(
    client: Client,
    observed: Arc<Observed>,
    timeline: Timeline,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut watch = client.watch(Some(Revision(0)), WatchFilter::default());
        loop {
            match watch.next().await {
                Ok(WatchUpdate::Events {
                    revision,
                    time,
                    events,
                }) => {
                    for event in events {
                        match EventKind::try_from(event) {
                            Ok(kind) => observed.take(
                                Event {
                                    revision,
                                    time,
                                    kind,
                                },
                                timeline,
                            ),
                            Err(error) => {
                                timeline.say(Voice::Fault, &format!("unexpected event: {error}"))
                            }
                        }
                    }
                }
                Ok(WatchUpdate::Bookmark { .. }) => {}
                Ok(WatchUpdate::Resumed { replica, .. }) => {
                    timeline.say(
                        Voice::Cluster,
                        &format!("event stream resumed at {replica}"),
                    );
                }
                Err(error) => {
                    timeline.say(Voice::Fault, &format!("the event stream ended: {error}"));
                    return;
                }
            }
        }
    })
}

/// Locks; a panic elsewhere ends the demo anyway.
pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
