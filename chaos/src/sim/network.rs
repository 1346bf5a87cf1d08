//! The simulated network: directed links with latency and cuts; requests and answers are drawn apart.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::sim::draws::{Domain, draws};
use crate::sim::runtime::{NodeId, spawn_on};

/// Latency of one message, in microseconds.
const LATENCY_US: std::ops::Range<u64> = 100..2_000;
/// Bits of a node's number.
const NODE_BITS: u32 = 16;
/// FNV-1a's offset and prime, for 64 bits.
const TRACE_SEED: u64 = 0xcbf2_9ce4_8422_2325;
const TRACE_FACTOR: u64 = 0x0000_0100_0000_01b3;
/// Of what is sent along a bad link, so much is lost, and so much held up; of requests so many arrive twice.
const LOST_ON_BAD_LINKS: f64 = 0.25;
const HELD_UP_ON_BAD_LINKS: f64 = 0.25;
const REPEATED_ON_BAD_LINKS: f64 = 0.25;
/// How long something is held up, in microseconds: others overtake it, and some is late for whoever waits.
const HELD_UP_US: std::ops::Range<u64> = 200_000..2_000_000;
/// Latency of the one message in a hundred that is slow, in microseconds.
const SLOW_LATENCY_US: std::ops::Range<u64> = 2_000..60_000;

/// Links between all nodes of a world.
#[derive(Clone, Debug)]
pub struct SimNetwork {
    links: Arc<Mutex<Links>>,
}

/// What befell messages along bad links.
#[derive(Clone, Copy, Debug)]
pub struct Mishaps {
    /// Messages that were lost.
    pub lost: u64,
    /// Messages that were held up.
    pub held_up: u64,
    /// Requests that arrived twice.
    pub repeated: u64,
}

#[derive(Debug)]
struct Links {
    seed: u64,
    /// The draws of each directed link.
    random: BTreeMap<(NodeId, NodeId), ChaCha8Rng>,
    /// Directed pairs that let nothing through.
    cut: BTreeSet<(NodeId, NodeId)>,
    /// Directed pairs that lose some of what they carry.
    bad: BTreeSet<(NodeId, NodeId)>,
    /// What befell messages along such links.
    lost: u64,
    held_up: u64,
    repeated: u64,
    /// How often each node was killed: a message to or from an earlier life is lost.
    lives: BTreeMap<NodeId, u64>,
    down: BTreeSet<NodeId>,
    messages: u64,
    /// Digest of the time, the ends and the fate of every message.
    trace: u64,
    began: Instant,
}

impl SimNetwork {
    /// A network whose draws come from `seed`.
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

    /// Lets the link from `from` to `to` lose some of what it carries, hold some of it up, and deliver some requests twice.
    pub fn spoil(&self, from: NodeId, to: NodeId) {
        self.lock().bad.insert((from, to));
    }

    /// Repairs every link.
    pub fn heal(&self) {
        let mut links = self.lock();
        links.cut.clear();
        links.bad.clear();
    }

    /// Whether the link from `from` to `to` is about to deliver a request twice: a seed for its second arrival.
    fn repeats(&self, from: NodeId, to: NodeId) -> Option<u64> {
        let mut links = self.lock();
        let repeats = links.draw_mishap(from, to, REPEATED_ON_BAD_LINKS);
        links.repeated += u64::from(repeats);
        repeats.then(|| links.draws(from, to).random())
    }

    /// What befell messages along bad links so far.
    #[must_use]
    pub fn mishaps(&self) -> Mishaps {
        let links = self.lock();
        Mishaps {
            lost: links.lost,
            held_up: links.held_up,
            repeated: links.repeated,
        }
    }

    /// A node died: messages under way to and from it are lost.
    pub fn node_down(&self, node: NodeId) {
        let mut links = self.lock();
        *links.lives.entry(node).or_default() += 1;
        links.down.insert(node);
    }

    /// A node is back.
    pub fn node_up(&self, node: NodeId) {
        self.lock().down.remove(&node);
    }

    /// Messages sent so far.
    #[must_use]
    pub fn messages(&self) -> u64 {
        self.lock().messages
    }

    /// Digest of the time, the ends and the fate of every message so far.
    #[must_use]
    pub fn trace(&self) -> u64 {
        self.lock().trace
    }

    /// Waits as long as one message takes; false if it is lost on the way.
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
    /// The work goes on at the other end although its answer may never arrive.
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
            // The asker may have given up meanwhile.
            let _unheard = answer.send(serve.await);
        });
        let answer = answered.await.ok()?;
        self.travel(to, from).await.then_some(answer)
    }

    /// The same for a request that a bad link may deliver twice: `serve` makes what is run for each arrival. Whoever sent it
    /// hears the answer to one of them.
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

    // A panic while the lock is held ends the world anyway; what is behind it is plain data.
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

    /// The draws of a link: those of others are not touched by what it carries.
    fn draws(&mut self, from: NodeId, to: NodeId) -> &mut ChaCha8Rng {
        let seed = self.seed;
        let of_link = || draws(seed, Domain::Link, (from.0 << NODE_BITS) | to.0, 0);
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

    /// How much longer something takes along a bad link.
    fn draw_delay(&mut self, from: NodeId, to: NodeId) -> Duration {
        if !self.draw_mishap(from, to, HELD_UP_ON_BAD_LINKS) {
            return Duration::ZERO;
        }
        self.held_up += 1;
        Duration::from_micros(self.draws(from, to).random_range(HELD_UP_US))
    }

    /// Whether something befalls a message; on good links nothing does, and nothing is drawn.
    fn draw_mishap(&mut self, from: NodeId, to: NodeId, probability: f64) -> bool {
        self.bad.contains(&(from, to)) && self.draws(from, to).random_bool(probability)
    }

    fn lives_of(&self, from: NodeId, to: NodeId) -> (u64, u64) {
        let lives = |node| self.lives.get(&node).copied().unwrap_or_default();
        (lives(from), lives(to))
    }
}
