//! Simulated network: directed links with latency and cuts; requests and answers are drawn independently.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::sim::random_streams::{StreamOwner, draws};
use crate::sim::runtime::{NodeId, spawn_on};

/// Latency of one message, in microseconds.
const LATENCY_US: std::ops::Range<u64> = 100..2_000;
/// Bits of a node's number.
const NODE_BITS: u32 = 16;
/// FNV-1a's offset and prime, for 64 bits.
const TRACE_SEED: u64 = 0xcbf2_9ce4_8422_2325;
const TRACE_FACTOR: u64 = 0x0000_0100_0000_01b3;
/// Share of messages on a bad link that are lost, and that are delayed; share of requests that arrive
/// twice.
const LOST_ON_BAD_LINKS: f64 = 0.25;
const HELD_UP_ON_BAD_LINKS: f64 = 0.25;
const REPEATED_ON_BAD_LINKS: f64 = 0.25;
/// Delay on a bad link, in microseconds: other messages overtake, and some exceed the receiver's timeout.
const HELD_UP_US: std::ops::Range<u64> = 200_000..2_000_000;
/// Latency of the one message in a hundred that is slow, in microseconds.
const SLOW_LATENCY_US: std::ops::Range<u64> = 2_000..60_000;

/// Links between all nodes of a world.
#[derive(Clone, Debug)]
pub struct SimNetwork {
    links: Arc<Mutex<Links>>,
}

/// Counts of lost, delayed and duplicated messages on bad links.
#[derive(Clone, Copy, Debug)]
pub struct LinkCounts {
    /// Lost messages.
    pub lost: u64,
    /// Delayed messages.
    pub held_up: u64,
    /// Duplicated requests.
    pub repeated: u64,
}

#[derive(Debug)]
struct Links {
    seed: u64,
    /// Random stream of each directed link.
    random: BTreeMap<(NodeId, NodeId), ChaCha8Rng>,
    /// Directed pairs that deliver nothing.
    cut: BTreeSet<(NodeId, NodeId)>,
    /// Directed pairs with bad links.
    bad: BTreeSet<(NodeId, NodeId)>,
    /// Messages lost on bad links.
    lost: u64,
    held_up: u64,
    repeated: u64,
    /// Number of kills of each node: messages to or from an earlier life are lost.
    lives: BTreeMap<NodeId, u64>,
    down: BTreeSet<NodeId>,
    messages: u64,
    /// Digest of time, endpoints and outcome of every message.
    trace: u64,
    began: Instant,
}

impl SimNetwork {
    /// A network whose draws derive from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let links = Links {
            seed,
            random: BTreeMap::new(),
            cut: BTreeSet::new(),
            bad: BTreeSet::new(),
            lost: 0,
            held_up: 0,
            repeated: 0,
            lives: BTreeMap::new(),
            down: BTreeSet::new(),
            messages: 0,
            trace: TRACE_SEED,
            began: Instant::now(),
        };
        Self {
            links: Arc::new(Mutex::new(links)),
        }
    }

    /// Cuts the link from `from` to `to`, one way.
    pub fn cut(&self, from: NodeId, to: NodeId) {
        self.lock().cut.insert((from, to));
    }

    /// Cuts a node off from all others, both ways.
    pub fn isolate(&self, node: NodeId, others: impl IntoIterator<Item = NodeId>) {
        let mut links = self.lock();
        for other in others {
            links.cut.insert((node, other));
            links.cut.insert((other, node));
        }
    }

    /// Makes the link from `from` to `to` lose and delay some messages, and deliver some requests twice.
    pub fn degrade(&self, from: NodeId, to: NodeId) {
        self.lock().bad.insert((from, to));
    }

    /// Repairs every link.
    pub fn heal(&self) {
        let mut links = self.lock();
        links.cut.clear();
        links.bad.clear();
    }

    /// Whether the link from `from` to `to` delivers the next request twice: a seed for its second arrival.
    fn repeats(&self, from: NodeId, to: NodeId) -> Option<u64> {
        let mut links = self.lock();
        let repeats = links.draw_mishap(from, to, REPEATED_ON_BAD_LINKS);
        links.repeated += u64::from(repeats);
        repeats.then(|| links.draws(from, to).random())
    }

    /// Counts for bad links so far.
    #[must_use]
    pub fn mishaps(&self) -> LinkCounts {
        let links = self.lock();
        LinkCounts {
            lost: links.lost,
            held_up: links.held_up,
            repeated: links.repeated,
        }
    }

    /// Records the death of a node: messages in flight from and to it are lost.
    pub fn node_down(&self, node: NodeId) {
        let mut links = self.lock();
        *links.lives.entry(node).or_default() += 1;
        links.down.insert(node);
    }

    /// Records the restart of a node.
    pub fn node_up(&self, node: NodeId) {
        self.lock().down.remove(&node);
    }

    /// Number of messages sent so far.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.lock().messages
    }

    /// Digest of time, endpoints and outcome of every message so far.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.lock().trace
    }

    /// Waits for the latency of one message; returns false if it is lost on the way.
    pub async fn travel(&self, from: NodeId, to: NodeId) -> bool {
        let (latency, lives, is_lost) = {
            let mut links = self.lock();
            links.messages += 1;
            let latency = links.draw_latency(from, to) + links.draw_delay(from, to);
            let is_lost = links.draw_mishap(from, to, LOST_ON_BAD_LINKS);
            links.lost += u64::from(is_lost);
            (latency, links.lives_of(from, to), is_lost)
        };
        tokio::time::sleep(latency).await;
        let mut links = self.lock();
        let same_lives = links.lives_of(from, to) == lives;
        let arrives =
            same_lives && !is_lost && !links.cut.contains(&(from, to)) && !links.down.contains(&to);
        links.note(from, to, arrives);
        arrives
    }

    /// Runs `serve` on `to` for a request from `from`; `None` if the request or its answer is lost.
    ///
    /// The work continues at the other end even if its answer is lost.
    pub async fn exchange<T, F>(&self, from: NodeId, to: NodeId, serve: F) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        if !self.travel(from, to).await {
            return None;
        }
        let (answer, answered) = oneshot::channel();
        let seed = self.lock().draws(from, to).random();
        spawn_on(to, seed, async move {
            // The caller may have given up meanwhile.
            let _unheard = answer.send(serve.await);
        });
        let answer = answered.await.ok()?;
        self.travel(to, from).await.then_some(answer)
    }

    /// Like [`Self::exchange`], for a request that a bad link may deliver twice: `serve` creates the work
    /// for each arrival. The caller receives one of the answers.
    pub async fn request<T, F>(&self, from: NodeId, to: NodeId, serve: impl Fn() -> F) -> Option<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        if let Some(seed) = self.repeats(from, to) {
            let (network, served) = (self.clone(), serve());
            spawn_on(from, seed, async move {
                let _unheard = network.exchange(from, to, served).await;
            });
        }
        self.exchange(from, to, serve()).await
    }

    // A panic while the lock is held ends the world anyway, and the data has no invariants.
    fn lock(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Links {
    fn note(&mut self, from: NodeId, to: NodeId, arrives: bool) {
        let elapsed_us = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let words = [
            elapsed_us,
            u64::from(from.0),
            u64::from(to.0),
            u64::from(arrives),
        ];
        for word in words {
            self.trace = (self.trace ^ word).wrapping_mul(TRACE_FACTOR);
        }
    }

    /// Random stream of a link, independent of the traffic on other links.
    fn draws(&mut self, from: NodeId, to: NodeId) -> &mut ChaCha8Rng {
        let seed = self.seed;
        let of_link = || draws(seed, StreamOwner::Link, (from.0 << NODE_BITS) | to.0, 0);
        self.random.entry((from, to)).or_insert_with(of_link)
    }

    fn draw_latency(&mut self, from: NodeId, to: NodeId) -> Duration {
        let random = self.draws(from, to);
        let range = if random.random_range(0..100) == 0 {
            SLOW_LATENCY_US
        } else {
            LATENCY_US
        };
        Duration::from_micros(random.random_range(range))
    }

    /// Draws the extra delay on a bad link.
    fn draw_delay(&mut self, from: NodeId, to: NodeId) -> Duration {
        if !self.draw_mishap(from, to, HELD_UP_ON_BAD_LINKS) {
            return Duration::ZERO;
        }
        self.held_up += 1;
        Duration::from_micros(self.draws(from, to).random_range(HELD_UP_US))
    }

    /// Draws whether a message is affected by a bad link; on good links nothing is drawn.
    fn draw_mishap(&mut self, from: NodeId, to: NodeId, probability: f64) -> bool {
        self.bad.contains(&(from, to)) && self.draws(from, to).random_bool(probability)
    }

    fn lives_of(&self, from: NodeId, to: NodeId) -> (u64, u64) {
        let lives = |node| self.lives.get(&node).copied().unwrap_or_default();
        (lives(from), lives(to))
    }
}
