//! Thousands of simulated workers in this process: they register, beat, and say of every task they are
//! given that it runs (or has ended), without starting anything.

mod host;
mod links;
mod session;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::fleet::host::SimulatedHost;
use crate::fleet::links::Links;
use crate::fleet::session::Session;

/// Pause between two looks at the counters.
const LOOK_EVERY: Duration = Duration::from_millis(1);
/// Time over which the workers' first connections are spread, for every thousand of them.
const JOIN_SPREAD_PER_THOUSAND: Duration = Duration::from_millis(200);

/// Workers that were heard and whose times nobody has taken yet.
const HEARD_MAX: usize = 16_384;

/// What a worker is made to do.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// To find something.
    Find,
    /// To fall silent for good, as a host does that loses its power: its stream stays open, and nothing comes.
    FallSilent,
}

/// A worker that has fallen silent.
#[derive(Clone, Debug)]
pub(crate) struct Silent {
    /// Name of its host.
    pub(crate) host: String,
    /// When its last beat was sent.
    pub(crate) since: Instant,
}

/// What becomes of the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskLife {
    /// They run until they are told to stop.
    Run,
    /// They end well at once, those that run already too.
    End,
}

/// How many workers of which size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FleetShape {
    /// Workers, each a host of its own.
    pub(crate) hosts: u32,
    /// GPUs of each.
    pub(crate) gpus_per_host: u32,
    /// HTTP/2 connections that all share.
    pub(crate) connections: usize,
}

/// What all workers have seen together.
#[derive(Debug, Default)]
struct Counters {
    welcomed: AtomicU64,
    assigned: AtomicU64,
    beats: AtomicU64,
    acknowledged: AtomicU64,
    refused: AtomicU64,
}

/// Running workers; they fall silent when this is dropped.
pub(crate) struct Fleet {
    counters: Arc<Counters>,
    life: watch::Sender<TaskLife>,
    orders: Vec<mpsc::Sender<Order>>,
    heard: mpsc::Receiver<Duration>,
    silent: mpsc::Receiver<Silent>,
    _workers: JoinSet<()>,
}

impl Fleet {
    /// Starts the workers; they find the leader among `addresses` by themselves.
    pub(crate) fn start(shape: FleetShape, addresses: &[String]) -> anyhow::Result<Self> {
        let counters = Arc::new(Counters::default());
        let links = Arc::new(Links::new(addresses, shape.connections)?);
        let (life, _) = watch::channel(TaskLife::Run);
        let spread = JOIN_SPREAD_PER_THOUSAND * shape.hosts / 1_000;
        let (tell, heard) = mpsc::channel(HEARD_MAX);
        let (fall_silent, silent) = mpsc::channel(HEARD_MAX);
        let mut orders = Vec::new();
        let mut workers = JoinSet::new();
        for number in 0..shape.hosts {
            let (order, ordered) = mpsc::channel(1);
            orders.push(order);
            let session = Session {
                host: SimulatedHost::new(number, shape.gpus_per_host),
                links: Arc::clone(&links),
                counters: Arc::clone(&counters),
                life: life.subscribe(),
                orders: ordered,
                heard: tell.clone(),
                silent: fall_silent.clone(),
                phase: f64::from(number) / f64::from(shape.hosts),
            };
            workers.spawn(session.run(spread));
        }
        Ok(Self {
            counters,
            life,
            orders,
            heard,
            silent,
            _workers: workers,
        })
    }

    /// A worker finds something.
    pub(crate) fn find(&self, number: u32) -> anyhow::Result<()> {
        self.order(number, Order::Find)
    }

    /// A worker falls silent for good.
    pub(crate) fn mute(&self, number: u32) -> anyhow::Result<()> {
        self.order(number, Order::FallSilent)
    }

    fn order(&self, number: u32, order: Order) -> anyhow::Result<()> {
        let worker = self.orders.get(number as usize);
        let worker = worker.context("no such worker")?;
        worker.try_send(order).context("it has an order already")
    }

    /// Waits for the next worker that has fallen silent.
    pub(crate) async fn await_silent(&mut self, patience: Duration) -> anyhow::Result<Silent> {
        let silent = timeout(patience, self.silent.recv()).await;
        let silent = silent.with_context(|| format!("nobody fell silent within {patience:?}"))?;
        silent.context("no worker is left")
    }

    /// Waits for the next worker that hears that its finding is committed; returns how long that took.
    pub(crate) async fn await_heard(&mut self, patience: Duration) -> anyhow::Result<Duration> {
        let heard = timeout(patience, self.heard.recv()).await;
        let heard = heard.with_context(|| format!("nobody was heard within {patience:?}"))?;
        heard.context("no worker is left")
    }

    /// Decides what becomes of tasks from now on.
    pub(crate) fn set_life(&self, life: TaskLife) {
        self.life.send_replace(life);
    }

    /// Tasks that workers were given so far, every attempt counted once.
    pub(crate) fn assigned(&self) -> u64 {
        self.counters.assigned.load(Ordering::Relaxed)
    }

    /// Beats that were sent and acknowledged so far.
    pub(crate) fn beats(&self) -> (u64, u64) {
        let counters = &self.counters;
        let sent = counters.beats.load(Ordering::Relaxed);
        (sent, counters.acknowledged.load(Ordering::Relaxed))
    }

    /// Waits until so many workers were welcomed.
    pub(crate) async fn await_welcomed(
        &self,
        hosts: u32,
        patience: Duration,
    ) -> anyhow::Result<()> {
        let read = || self.counters.welcomed.load(Ordering::Relaxed);
        self.reach("welcomed workers", u64::from(hosts), patience, read)
            .await?;
        Ok(())
    }

    /// Waits until workers were given so many tasks in all; returns when that was.
    pub(crate) async fn await_assigned(
        &self,
        tasks: u64,
        patience: Duration,
    ) -> anyhow::Result<Instant> {
        self.reach("assigned tasks", tasks, patience, || self.assigned())
            .await
    }

    async fn reach(
        &self,
        what: &str,
        wanted: u64,
        patience: Duration,
        read: impl Fn() -> u64,
    ) -> anyhow::Result<Instant> {
        let deadline = Instant::now() + patience;
        loop {
            let (count, now) = (read(), Instant::now());
            if count >= wanted {
                return Ok(now);
            }
            if now > deadline {
                let refused = self.counters.refused.load(Ordering::Relaxed);
                bail!("{count} of {wanted} {what} ({refused} workers refused) after {patience:?}");
            }
            sleep(LOOK_EVERY).await;
        }
    }
}
