//! Successive streams of one simulated worker.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use muster_proto::status::ErrorReport;
use muster_proto::v1;
use muster_proto::v1::leader_message::Kind as FromLeader;
use muster_proto::v1::worker_message::Kind as ToLeader;
use muster_proto::v1::worker_service_client::WorkerServiceClient;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use crate::fleet::host::SimulatedHost;
use crate::fleet::links::Links;
use crate::fleet::{Counters, Order, SilentWorker, TaskBehavior};

/// Capacity of the queue of messages to the leader.
const OUTGOING_MAX: usize = 8;
/// Pause between two streams.
const RECONNECT_PAUSE: Duration = Duration::from_millis(200);

/// A worker.
pub(super) struct Session {
    pub(super) host: SimulatedHost,
    pub(super) links: Arc<Links>,
    pub(super) counters: Arc<Counters>,
    pub(super) behavior: watch::Receiver<TaskBehavior>,
    /// Orders to the worker.
    pub(super) orders: mpsc::Receiver<Order>,
    /// Receives the time until a finding was acknowledged.
    pub(super) acknowledged: mpsc::Sender<Duration>,
    /// Receives the worker when it has fallen silent.
    pub(super) silent: mpsc::Sender<SilentWorker>,
    /// Phase of its heartbeats within a period, from 0 to 1.
    pub(super) phase: f64,
}

/// One stream.
struct Stream {
    outgoing: mpsc::Sender<v1::WorkerMessage>,
    sequence: u64,
    acknowledged: u64,
    /// Time of the last heartbeat; the stream's start before the first one.
    last_heartbeat: Instant,
    /// Heartbeat period, as given in the welcome.
    default_period: Duration,
    /// `None` before the worker is welcomed.
    heartbeats: Option<Interval>,
}

impl Session {
    /// Runs until the task is dropped; starts at some time within `spread`.
    pub(super) async fn run(mut self, spread: Duration) {
        sleep(spread.mul_f64(self.phase)).await;
        loop {
            let number = self.host.number() as usize;
            let (tried, channel) = self.links.to_leader(number);
            let ended = self.connect(WorkerServiceClient::new(channel)).await;
            if let Err(status) = ended {
                let report = ErrorReport::of(&status);
                let leader = report.metadata.get("leader");
                self.links.redirect(tried, leader.map(String::as_str));
            }
            sleep(RECONNECT_PAUSE.mul_f64(0.5 + self.phase)).await;
        }
    }

    async fn connect(
        &mut self,
        mut client: WorkerServiceClient<tonic::transport::Channel>,
    ) -> Result<(), Status> {
        let (outgoing, receiver) = mpsc::channel(OUTGOING_MAX);
        let mut stream = Stream {
            outgoing,
            sequence: 0,
            acknowledged: 0,
            last_heartbeat: Instant::now(),
            default_period: Duration::ZERO,
            heartbeats: None,
        };
        stream.send(ToLeader::Hello(self.host.hello())).await;
        let mut incoming = client
            .session(ReceiverStream::new(receiver))
            .await?
            .into_inner();
        loop {
            tokio::select! {
                message = incoming.message() => {
                    let Some(message) = message? else { return Ok(()) };
                    if self.handle(message, &mut stream).await.is_break() {
                        return Ok(());
                    }
                }
                () = stream.is_due() => stream.heartbeat(self, false).await,
                Some(order) = self.orders.recv() => match order {
                    Order::Find => {
                        self.host.report_finding();
                        stream.heartbeat(self, true).await;
                    }
                    // The stream stays open: a host without power closes nothing.
                    Order::FallSilent => return self.fall_silent(&stream).await,
                },
                changed = self.behavior.changed() => {
                    if changed.is_err() {
                        return Ok(());
                    }
                    if *self.behavior.borrow_and_update() == TaskBehavior::End {
                        self.host.end_tasks();
                        stream.heartbeat(self, true).await;
                    }
                }
            }
        }
    }

    /// Never returns, so that the worker never reconnects, even to a new leader.
    async fn fall_silent(&self, stream: &Stream) -> Result<(), Status> {
        let silent = SilentWorker {
            host: self.host.name(),
            since: stream.last_heartbeat,
        };
        // Closed: silent workers are no longer awaited.
        let _closed = self.silent.send(silent).await;
        std::future::pending().await
    }

    async fn handle(&mut self, message: v1::LeaderMessage, stream: &mut Stream) -> ControlFlow<()> {
        match message.kind {
            Some(FromLeader::Welcome(welcome)) => {
                self.host.leader = welcome.leadership_epoch;
                self.counters.welcomed.fetch_add(1, Ordering::Relaxed);
                let period = welcome
                    .timings
                    .map_or(1, |timings| timings.heartbeat_ms.max(1));
                stream.default_period = Duration::from_millis(period);
                stream.begin_heartbeats(
                    stream.default_period.mul_f64(self.phase),
                    stream.default_period,
                );
                stream.heartbeat(self, true).await;
            }
            Some(FromLeader::Desired(desired)) => {
                if let Some(after) = self.host.acknowledged(&desired) {
                    // Closed: acknowledgements are no longer awaited.
                    let _closed = self.acknowledged.send(after).await;
                }
                let behavior = *self.behavior.borrow();
                let new = self.host.apply_desired_state(desired, behavior);
                self.counters.assigned.fetch_add(new, Ordering::Relaxed);
                stream.heartbeat(self, true).await;
            }
            Some(FromLeader::HeartbeatAck(ack)) => {
                stream.acknowledged = ack.sequence;
                stream.heartbeat_interval(ack.next_heartbeat_ms);
                self.counters.acknowledged.fetch_add(1, Ordering::Relaxed);
            }
            Some(FromLeader::Rejected(_)) => {
                self.counters.refused.fetch_add(1, Ordering::Relaxed);
                return ControlFlow::Break(());
            }
            // Simulated workers get no requests for output, commands or faults, and their replicas stay.
            Some(
                FromLeader::Replicas(_)
                | FromLeader::LogRequest(_)
                | FromLeader::LogCancel(_)
                | FromLeader::Exec(_)
                | FromLeader::InjectFault(_)
                | FromLeader::Debug(_),
            )
            | None => {}
        }
        ControlFlow::Continue(())
    }
}

impl Stream {
    fn begin_heartbeats(&mut self, first: Duration, period: Duration) {
        let mut heartbeats = interval_at(Instant::now() + first, period);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.heartbeats = Some(heartbeats);
    }

    /// Sets the heartbeat period that the leader requests; if none, the one of the session's start.
    fn heartbeat_interval(&mut self, period_ms: Option<u64>) {
        let period = period_ms.map_or(self.default_period, Duration::from_millis);
        if self
            .heartbeats
            .as_ref()
            .is_some_and(|heartbeats| heartbeats.period() != period)
        {
            self.begin_heartbeats(period, period);
        }
    }

    /// Returns when the next heartbeat is due; never before the worker is welcomed.
    async fn is_due(&mut self) {
        match &mut self.heartbeats {
            Some(heartbeats) => {
                heartbeats.tick().await;
            }
            None => std::future::pending().await,
        }
    }

    async fn heartbeat(&mut self, session: &Session, has_changed: bool) {
        if self.heartbeats.is_none() {
            return;
        }
        self.sequence += 1;
        self.last_heartbeat = Instant::now();
        session.counters.heartbeats.fetch_add(1, Ordering::Relaxed);
        let heartbeat = session
            .host
            .heartbeat(self.sequence, self.acknowledged, has_changed);
        self.send(ToLeader::Heartbeat(heartbeat)).await;
    }

    async fn send(&self, kind: ToLeader) {
        // A broken stream is detected at its other end.
        drop(
            self.outgoing
                .send(v1::WorkerMessage { kind: Some(kind) })
                .await,
        );
    }
}
