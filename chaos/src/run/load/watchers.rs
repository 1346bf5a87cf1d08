//! Watchers: one at each replica and one at all of them, each of all events after the same revision.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_client::{Client, ClientConfig, ClientError, WatchFilter, WatchUpdate};
use muster_model::event::EventKind;
use muster_model::ids::Revision;
use muster_proto::v1;
use serde::Serialize;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::run::clock::now_us;
use crate::run::options::{POLL, WATCH_TIMEOUT};

/// Events of one revision, as received by a watcher.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::run) struct Delivery {
    /// The revision.
    pub(in crate::run) revision: Revision,
    /// Its events.
    pub(in crate::run) events: Vec<v1::Event>,
    /// Time of receipt, by the clock of the run.
    pub(in crate::run) at_us: u64,
}

/// Events reported to a watcher as forgotten before it received them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(in crate::run) struct Gap {
    /// Last revision received.
    pub(in crate::run) after: Revision,
    /// The newest forgotten revision.
    pub(in crate::run) until: Revision,
}

impl Gap {
    /// Whether the gap contains a revision.
    pub(in crate::run) fn holds(&self, revision: Revision) -> bool {
        self.after < revision && revision <= self.until
    }
}

/// Everything received by one watcher.
#[derive(Clone, Debug, Default)]
pub(in crate::run) struct WatchedEvents {
    /// Address of the watcher's replica.
    pub(in crate::run) at: String,
    /// In the order of receipt.
    pub(in crate::run) deliveries: Vec<Delivery>,
    /// Last revision up to which the cluster confirmed complete delivery.
    pub(in crate::run) position: Revision,
    /// Number of times the stream was cut off and resumed.
    pub(in crate::run) resumed: u32,
    /// Gaps reported to the watcher.
    pub(in crate::run) gaps: Vec<Gap>,
    /// Reason for giving up, if it did.
    pub(in crate::run) ended: Option<String>,
}

impl WatchedEvents {
    /// Events from a time on, with their time of receipt.
    pub(in crate::run) fn kinds_since(
        &self,
        from_us: u64,
    ) -> impl Iterator<Item = (u64, EventKind)> {
        let since = { self.deliveries.iter() }.filter(move |it| it.at_us >= from_us);
        since.flat_map(|delivery| {
            // Event kinds unknown to this build are not counted.
            let kinds = delivery.events.iter();
            kinds.filter_map(|it| Some((delivery.at_us, EventKind::try_from(it.clone()).ok()?)))
        })
    }
}

/// The running watchers.
#[derive(Debug)]
pub(in crate::run) struct Watchers {
    watched: Vec<Arc<Mutex<WatchedEvents>>>,
    at_work: Vec<JoinHandle<()>>,
}

impl Watchers {
    /// Starts all watchers after a revision.
    ///
    /// # Errors
    /// If the addresses are invalid.
    pub(in crate::run) async fn begin(
        cluster: &ClientConfig,
        from: Revision,
    ) -> Result<Self, ClientError> {
        let mut places = vec![cluster.addresses.clone()];
        places.extend(
            cluster
                .addresses
                .iter()
                .map(|address| vec![address.clone()]),
        );
        let mut watchers = Self {
            watched: Vec::new(),
            at_work: Vec::new(),
        };
        for place in places {
            let watched = Arc::new(Mutex::new(WatchedEvents {
                at: place.join(", "),
                ..WatchedEvents::default()
            }));
            let config = ClientConfig {
                discover: false,
                addresses: place,
                ..cluster.clone()
            };
            let client = Client::connect(config).await?;
            watchers
                .at_work
                .push(tokio::spawn(listen(client, from, Arc::clone(&watched))));
            watchers.watched.push(watched);
        }
        Ok(watchers)
    }

    /// Waits until all have received a revision, or time is up; returns what they received.
    pub(in crate::run) async fn end(self, last: Revision) -> Vec<WatchedEvents> {
        let deadline = Instant::now() + WATCH_TIMEOUT;
        while Instant::now() < deadline && self.watched.iter().any(|it| lock(it).position < last) {
            tokio::time::sleep(POLL).await;
        }
        self.watched.iter().map(|it| lock(it).clone()).collect()
    }
}

impl Drop for Watchers {
    fn drop(&mut self) {
        self.at_work.iter().for_each(JoinHandle::abort);
    }
}

async fn listen(client: Client, from: Revision, watched: Arc<Mutex<WatchedEvents>>) {
    let mut watch = client.watch(Some(from), WatchFilter::default());
    loop {
        match watch.next().await {
            Ok(WatchUpdate::Events {
                revision, events, ..
            }) => {
                let delivery = Delivery {
                    revision,
                    events,
                    at_us: now_us(),
                };
                let mut watched = lock(&watched);
                watched.position = watched.position.max(revision);
                watched.deliveries.push(delivery);
            }
            Ok(WatchUpdate::Bookmark { revision }) => {
                let mut watched = lock(&watched);
                watched.position = watched.position.max(revision);
            }
            Ok(WatchUpdate::Resumed { .. }) => lock(&watched).resumed += 1,
            Err(ClientError::Compacted { asked, compacted }) => {
                let (after, until) = (asked, compacted);
                let mut watched = lock(&watched);
                watched.gaps.push(Gap { after, until });
                watched.position = watched.position.max(until);
                watch = client.watch(Some(until), WatchFilter::default());
            }
            Err(error) => {
                lock(&watched).ended = Some(error.to_string());
                return;
            }
        }
    }
}

fn lock(watched: &Mutex<WatchedEvents>) -> MutexGuard<'_, WatchedEvents> {
    // A list is consistent after every push.
    watched.lock().unwrap_or_else(PoisonError::into_inner)
}
