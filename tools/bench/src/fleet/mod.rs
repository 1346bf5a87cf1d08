//! Thousands of simulated workers in this process: they register, send heartbeats, and report every assigned
//! task as running (or ended) without starting anything.

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

/// Pause between two checks of the counters.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Time over which the workers' first connections are spread, for every thousand of them.
const JOIN_SPREAD_PER_THOUSAND: Duration = Duration::from_millis(200);

/// Capacity for workers' reports that were not taken yet.
const REPORTS_MAX: usize = 16_384;

/// Order to a simulated worker.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// Reports a finding.
    Find,
    /// Falls silent permanently, like a host that loses power: its stream stays open, without messages.
    FallSilent,
}

/// A worker that has fallen silent.
#[derive(Clone, Debug)]
pub(crate) struct SilentWorker {
    /// Name of its host.
    pub(crate) host: String,
    /// Time of its last heartbeat.
    pub(crate) since: Instant,
}

/// Behavior of the tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskBehavior {
    /// They run until they are stopped.
    Run,
    /// They end successfully at once, including those that run already.
    End,
}

/// Number and size of workers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FleetShape {
    /// Workers, each a host of its own.
    pub(crate) hosts: u32,
    /// GPUs of each.
    pub(crate) gpus_per_host: u32,
    /// HTTP/2 connections that all share.
    pub(crate) connections: usize,
}

/// Counters over all workers.
#[derive(Debug, Default)]
struct Counters {
    welcomed: AtomicU64,
    assigned: AtomicU64,
    heartbeats: AtomicU64,
    acknowledged: AtomicU64,
    refused: AtomicU64,
}

/// Running workers; they fall silent when this is dropped.
pub(crate) struct Fleet {
    counters: Arc<Counters>,
    behavior: watch::Sender<TaskBehavior>,
    orders: Vec<mpsc::Sender<Order>>,
    acknowledged: mpsc::Receiver<Duration>,
    silent: mpsc::Receiver<SilentWorker>,
    _workers: JoinSet<()>,
}

impl Fleet {
    /// Starts the workers; they find the leader among `addresses` by themselves.
    pub(crate) fn start(shape: FleetShape, addresses: &[String]) -> anyhow::Result<Self> {
        let counters = Arc::new(Counters::default());
        let links = Arc::new(Links::new(addresses, shape.connections)?);
        let (behavior, _) = watch::channel(TaskBehavior::Run);
        let spread = JOIN_SPREAD_PER_THOUSAND * shape.hosts / 1_000;
        let (acknowledge, acknowledged) = mpsc::channel(REPORTS_MAX);
        let (fall_silent, silent) = mpsc::channel(REPORTS_MAX);
        let mut orders = Vec::new();
        let mut workers = JoinSet::new();
        for number in 0..shape.hosts {
            let (order, ordered) = mpsc::channel(1);
            orders.push(order);
            let session = Session {
                host: SimulatedHost::new(number, shape.gpus_per_host),
                links: Arc::clone(&links),
                counters: Arc::clone(&counters),
                behavior: behavior.subscribe(),
                orders: ordered,
                acknowledged: acknowledge.clone(),
                silent: fall_silent.clone(),
                phase: f64::from(number) / f64::from(shape.hosts),
            };
            workers.spawn(session.run(spread));
        }
        Ok(Self {
            counters,
            behavior,
            orders,
            acknowledged,
            silent,
            _workers: workers,
        })
    }

    /// Makes a worker report a finding.
    pub(crate) fn report_finding(&self, number: u32) -> anyhow::Result<()> {
        self.order(number, Order::Find)
    }

    /// Makes a worker fall silent permanently.
    pub(crate) fn silence(&self, number: u32) -> anyhow::Result<()> {
        self.order(number, Order::FallSilent)
    }

    fn order(&self, number: u32, order: Order) -> anyhow::Result<()> {
        let worker = self.orders.get(number as usize).context("no such worker")?;
        worker.try_send(order).context("it has an order already")
    }

    /// Waits for the next worker that has fallen silent.
    pub(crate) async fn await_silent(
        &mut self,
        wait_max: Duration,
    ) -> anyhow::Result<SilentWorker> {
        timeout(wait_max, self.silent.recv())
            .await
            .with_context(|| format!("no worker fell silent within {wait_max:?}"))?
            .context("no worker is left")
    }

    /// Waits for the next worker whose finding is acknowledged as committed; returns the time that took.
    pub(crate) async fn await_acknowledged(
        &mut self,
        wait_max: Duration,
    ) -> anyhow::Result<Duration> {
        timeout(wait_max, self.acknowledged.recv())
            .await
            .with_context(|| format!("no finding was acknowledged within {wait_max:?}"))?
            .context("no worker is left")
    }

    /// Sets the behavior of tasks from now on.
    pub(crate) fn set_task_behavior(&self, behavior: TaskBehavior) {
        self.behavior.send_replace(behavior);
    }

    /// Tasks that workers were given so far, every attempt counted once.
    pub(crate) fn assigned(&self) -> u64 {
        self.counters.assigned.load(Ordering::Relaxed)
    }

    /// Heartbeats sent and acknowledged so far.
    pub(crate) fn heartbeats(&self) -> (u64, u64) {
        let counters = &self.counters;
        let sent = counters.heartbeats.load(Ordering::Relaxed);
        (sent, counters.acknowledged.load(Ordering::Relaxed))
    }

    /// Waits until `hosts` workers were accepted.
    pub(crate) async fn await_welcomed(
        &self,
        hosts: u32,
        wait_max: Duration,
    ) -> anyhow::Result<()> {
        let read = || self.counters.welcomed.load(Ordering::Relaxed);
        self.await_count("welcomed workers", u64::from(hosts), wait_max, read)
            .await?;
        Ok(())
    }

    /// Waits until `tasks` tasks in total were assigned to workers; returns when that was.
    pub(crate) async fn await_assigned(
        &self,
        tasks: u64,
        wait_max: Duration,
    ) -> anyhow::Result<Instant> {
        self.await_count("assigned tasks", tasks, wait_max, || self.assigned())
            .await
    }

    async fn await_count(
        &self,
        what: &str,
        wanted: u64,
        wait_max: Duration,
        read: impl Fn() -> u64,
    ) -> anyhow::Result<Instant> {
        let deadline = Instant::now() + wait_max;
        loop {
            let (count, now) = (read(), Instant::now());
            if count >= wanted {
                return Ok(now);
            }
            if now > deadline {
                let refused = self.counters.refused.load(Ordering::Relaxed);
                bail!("{count} of {wanted} {what} ({refused} workers refused) after {wait_max:?}");
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}
