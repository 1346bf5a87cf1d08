//! Event log of a cluster: follows all events through every failover, so that a test can wait for expected ones.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_client::{Client, WatchFilter, WatchUpdate};
use muster_model::event::{Event, EventKind};
use muster_model::ids::{JobId, Revision};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::cluster::timeline::{LineKind, Timeline};

/// An event with its time of arrival.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedEvent {
    /// Time of arrival.
    pub at: Instant,
    /// The event.
    pub event: Event,
}

/// All events received so far.
#[derive(Debug, Default)]
pub(crate) struct EventLog {
    events: Mutex<Vec<ReceivedEvent>>,
    training: Mutex<Option<JobId>>,
    arrived: Notify,
}

/// An expected event did not happen.
#[derive(Debug, thiserror::Error)]
#[error("{what} did not happen within {} s", wait_max.as_secs())]
pub struct EventTimeout {
    what: String,
    wait_max: Duration,
}

impl EventLog {
    /// Number of events so far: a position to wait from.
    #[must_use]
    pub(crate) fn position(&self) -> usize {
        lock(&self.events).len()
    }

    /// Sets the training job, whose events go to the timeline.
    pub(crate) fn follow(&self, training: JobId) {
        *lock(&self.training) = Some(training);
    }

    /// Returns the first event from position `from` on for which `expected` holds.
    ///
    /// # Errors
    /// [`EventTimeout`] after `wait_max`.
    pub(crate) async fn wait_for(
        &self,
        what: &str,
        from: usize,
        wait_max: Duration,
        expected: impl Fn(&Event) -> bool,
    ) -> Result<ReceivedEvent, EventTimeout> {
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
        tokio::time::timeout(wait_max, search)
            .await
            .map_err(|_| EventTimeout {
                what: what.to_owned(),
                wait_max,
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
    pub(crate) fn first_since(
        &self,
        from: usize,
        wanted: impl Fn(&Event) -> bool,
    ) -> Option<ReceivedEvent> {
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
    ) -> Option<ReceivedEvent> {
        let events = lock(&self.events);
        let found = events
            .iter()
            .rev()
            .find(|seen| seen.at < end && wanted(&seen.event));
        found.cloned()
    }

    /// Calls `visit` with every event so far, in order.
    pub(crate) fn visit(&self, mut visit: impl FnMut(&Event)) {
        lock(&self.events)
            .iter()
            .for_each(|seen| visit(&seen.event));
    }

    fn take(&self, event: Event, timeline: Timeline) {
        timeline.print_event(&event, *lock(&self.training));
        lock(&self.events).push(ReceivedEvent {
            at: Instant::now(),
            event,
        });
        self.arrived.notify_waiters();
    }
}

/// Watches all events from the first revision on, until aborted.
#[must_use]
pub(crate) fn observe(client: Client, log: Arc<EventLog>, timeline: Timeline) -> JoinHandle<()> {
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
                            Ok(kind) => log.take(
                                Event {
                                    revision,
                                    time,
                                    kind,
                                },
                                timeline,
                            ),
                            Err(error) => timeline
                                .print_line(LineKind::Fault, &format!("unexpected event: {error}")),
                        }
                    }
                }
                Ok(WatchUpdate::Bookmark { .. }) => {}
                Ok(WatchUpdate::Resumed { replica, .. }) => {
                    timeline.print_line(
                        LineKind::Cluster,
                        &format!("event stream resumed at {replica}"),
                    );
                }
                Err(error) => {
                    timeline
                        .print_line(LineKind::Fault, &format!("the event stream ended: {error}"));
                    return;
                }
            }
        }
    })
}

/// Locks; a panic elsewhere ends the test anyway.
pub(crate) fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
