//! Watchers: each receives all events from the first on, through the real hub of a random replica, and
//! resumes at another one when it is cut off, as the SDK does.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_client::WatchPosition;
use muster_engine::state::State;
use muster_model::event::Event;
use muster_model::ids::Revision;
use muster_raft_store::Handle;
use muster_scheduler::watch_hub::{SubscribeError, Subscription, WatchFilter, WatchHub};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::sim::checkers::Checkers;
use crate::sim::faults::coverage::Situation;
use crate::sim::links::network::SimNetwork;
use crate::sim::runtime::{NodeId, spawn_on};

/// First node number of watchers.
pub const WATCHER_NODES: u32 = 940;
/// Maximum watches of a hub.
pub const WATCHES_MAX: usize = 16;
/// Queue of a hub for each watch, in revisions: short, so that some do not keep up.
pub const QUEUED_REVISIONS: usize = 64;
/// Time without messages after which a watcher reconnects: longer than the interval of bookmarks.
const SILENCE: Duration = Duration::from_secs(8);
/// Lifetime of a stream, in milliseconds: then the watcher resumes elsewhere, whether it was cut off or
/// not.
const KEPT_MS: std::ops::Range<u64> = 200..10_000;
/// Pause before another try.
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// Maximum messages in flight.
const UNDER_WAY_MAX: usize = 16;

/// Hubs of the running replicas.
#[derive(Clone, Default)]
pub struct Hubs {
    inner: Arc<Mutex<BTreeMap<NodeId, Served>>>,
}

/// Hub and handle of a replica.
type Served = (Arc<WatchHub>, Handle<State>);

impl fmt::Debug for Hubs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.lock().keys()).finish()
    }
}

impl Hubs {
    /// Registers the hub of a started replica.
    pub fn listen(&self, replica: NodeId, hub: Arc<WatchHub>, handle: Handle<State>) {
        self.lock().insert(replica, (hub, handle));
    }

    /// Removes a stopped replica.
    pub fn close(&self, replica: NodeId) {
        self.lock().remove(&replica);
    }

    /// A random running replica that serves watches: stopped ones and those without a group do not.
    fn draw(&self, random: &mut ChaCha8Rng) -> Option<(NodeId, Served)> {
        let hubs = self.lock();
        let serves = |node: &NodeId, handle: &Handle<State>| {
            let is_member = || handle.status().member(node.0.into()).is_some();
            !handle.leadership().borrow().stopped && is_member()
        };
        let serving = { hubs.iter() }.filter(|(node, (_, handle))| serves(node, handle));
        let serving: Vec<_> = serving.collect();
        let at = random.random_range(0..serving.len().max(1));
        let (node, (hub, handle)) = serving.get(at)?;
        Some((**node, (Arc::clone(hub), handle.clone())))
    }

    // A panic while the lock is held ends the world anyway, and the data has no invariants.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<NodeId, Served>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One watcher.
#[derive(Debug)]
pub struct SimWatcher {
    /// Number of the watcher, from 0.
    pub number: u32,
    /// The network.
    pub network: SimNetwork,
    /// The hubs it may use.
    pub hubs: Hubs,
    /// Checkers of its deliveries.
    pub checkers: Checkers,
    /// Its random stream.
    pub random: ChaCha8Rng,
    /// Whether it resumes one revision too late (a mutant).
    pub skips: bool,
}

/// Delivery from a replica.
type HubDelivery = (Revision, Vec<Event>);

impl SimWatcher {
    /// Its node.
    #[must_use]
    pub const fn node(&self) -> NodeId {
        NodeId(WATCHER_NODES + self.number)
    }

    /// Follows events until the world ends.
    pub async fn run(mut self) {
        let mut position = WatchPosition::after(Some(Revision(0)));
        loop {
            if let Some(stream) = self.open(&mut position).await {
                self.follow(stream, &mut position).await;
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Opens a stream at some replica, after the last delivery.
    async fn open(&mut self, position: &mut WatchPosition) -> Option<mpsc::Receiver<HubDelivery>> {
        let (replica, (hub, handle)) = self.hubs.draw(&mut self.random)?;
        let watcher = self.node();
        if !self.network.travel(watcher, replica).await {
            return None;
        }
        let from = position.revision().unwrap_or_default();
        let is_resumed = from > Revision(0);
        let asked = match self.skips && is_resumed {
            true => Revision(from.0 + 1),
            false => from,
        };
        let opened = hub.subscribe(|| handle.fork(), Some(asked), WatchFilter::default());
        let subscription = match opened {
            Ok(subscription) => subscription,
            Err(SubscribeError::Compacted(gone)) => {
                position.bookmark(gone.compacted);
                let number = self.number;
                // No entry was applied since the hub read the state: nothing was awaited in between.
                let lacked = handle.with_state(|state| state.events.compacted());
                self.checkers.with(|seen| {
                    seen.coverage.reached(Situation::EventsGone);
                    seen.watching.gone(number, asked, gone.compacted, lacked);
                });
                return None;
            }
            Err(SubscribeError::Full { .. }) => return None,
        };
        if is_resumed {
            self.checkers
                .with(|seen| seen.coverage.reached(Situation::WatchResumed));
        }
        let (sender, receiver) = mpsc::channel(UNDER_WAY_MAX);
        let network = self.network.clone();
        spawn_on(
            replica,
            self.random.random(),
            carry(subscription, network, replica, watcher, sender),
        );
        Some(receiver)
    }

    /// Receives deliveries until the stream ends, is silent for too long or has reached its lifetime.
    async fn follow(
        &mut self,
        mut stream: mpsc::Receiver<HubDelivery>,
        position: &mut WatchPosition,
    ) {
        let kept = Duration::from_millis(self.random.random_range(KEPT_MS));
        let until = Instant::now() + kept;
        loop {
            let silence = Instant::now() + SILENCE;
            let next = tokio::time::timeout_at(until.min(silence), stream.recv());
            let Ok(Some((revision, events))) = next.await else {
                return;
            };
            let number = self.number;
            if events.is_empty() {
                position.bookmark(revision);
                self.checkers
                    .with(|seen| seen.watching.bookmark(number, revision));
            } else if position.deliver(revision) {
                self.checkers
                    .with(|seen| seen.watching.delivered(number, revision, &events));
            }
        }
    }
}

/// Transports deliveries of a hub to a watcher, until the watcher is gone or a message is lost.
async fn carry(
    mut subscription: Subscription,
    network: SimNetwork,
    replica: NodeId,
    watcher: NodeId,
    sender: mpsc::Sender<HubDelivery>,
) {
    while let Ok(delivery) = subscription.next().await {
        if !network.travel(replica, watcher).await {
            // Silence: the watcher notices that nothing arrives.
            sender.closed().await;
            return;
        }
        if sender.send(delivery).await.is_err() {
            return;
        }
    }
}
