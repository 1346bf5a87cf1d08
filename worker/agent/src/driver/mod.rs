//! Driver of `core::agent`: feeds all events into it and executes its actions in order.
//!
//! The decision loop never waits for a disk: leases are extended right here, everything that must follow
//! the journal goes through the [`executor`].

mod clock_offset;
mod debug;
mod executor;
mod heartbeats;
mod output;
mod self_checks;
mod timed_output;

use std::collections::BTreeSet;

use clock_offset::ClockOffset;
use heartbeats::{Heartbeats, name_host};
use muster_control::agent::{Action, Agent, Input, SupervisorReport};
use muster_model::command::{Exit, GpuHealth, LastMeasurements};
use muster_model::desired::{DesiredState, TaskAssignment};
use muster_model::health::Component;
use muster_model::ids::{GpuUuid, LeadershipEpoch};
use muster_model::time::TimeMs;
use muster_monitor::gpu::{GpuHold, GpuMonitor, GpuOccupancy, GpuUpdate, GpuUsage, HealthChange};
use muster_monitor::health::{HealthHandle, Sample};
use muster_monitor::reports::MonitorReport;
use muster_proto::convert::gpu_uuid;
use muster_proto::v1;
use muster_proto::v1::injection::What;
use muster_proto::v1::leader_message::Kind as LeaderKind;
use muster_proto::v1::worker_message::Kind as WorkerKind;
use muster_service::systemd::Systemd;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, interval, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::config::WorkerConfig;
use crate::connection::session::Session;
use crate::error::Error;
use crate::inbox::InboxItem;
use crate::limits::{AGENT_TICK, RETENTION_INTERVAL};
use crate::metrics;
use crate::tasks::exec::Execs;
use crate::tasks::runner::Runner;
pub(crate) use executor::{Executor, ExecutorHandle};
use muster_supervisor::RunId;
use muster_supervisor::lease::clock::{LeaseClock, wall_clock};
use output::OutputRequests;
pub(crate) use self_checks::SelfChecks;

/// The rule for GPU memory that is not released, and its metrics.
const MEMORY_LEAK: &str = "mem_leak";
const HELD: &str = "held_mib";
const HELD_AFTER_KILL: &str = "held_after_kill_mib";

/// The decision loop.
pub(crate) struct Driver {
    pub(crate) agent: Agent,
    pub(crate) clock: LeaseClock,
    pub(crate) inbox: mpsc::Receiver<InboxItem>,
    pub(crate) reports: mpsc::Receiver<MonitorReport>,
    pub(crate) runner: Runner,
    pub(crate) executor: ExecutorHandle,
    pub(crate) execs: Execs,
    pub(crate) gpus: GpuMonitor,
    pub(crate) gpu_occupancy: GpuOccupancy,
    /// GPU usage of running tasks, for their exit records.
    pub(crate) uses: GpuUsage,
    pub(crate) health: HealthHandle,
    pub(crate) self_checks: SelfChecks,
    /// The newest accepted leadership, read by the session keeper.
    pub(crate) newest: watch::Sender<LeadershipEpoch>,
    pub(crate) logs: std::path::PathBuf,
    /// The newest settings, for options that reload (such as the retention of ended attempts' logs).
    pub(crate) settings: watch::Receiver<WorkerConfig>,
    /// Whether logs are shipped, so that their removal may have to wait for it.
    pub(crate) ships: bool,
    pub(crate) tasks: std::path::PathBuf,
    /// The systemd watchdog.
    pub(crate) systemd: Option<Systemd>,
    pub(crate) shutdown: CancellationToken,
}

/// State of the open session.
struct OpenSession {
    session: Session,
    heartbeats: Heartbeats,
    output: OutputRequests,
    offset: ClockOffset,
}

impl Driver {
    /// Runs until shutdown. Tasks keep running.
    ///
    /// # Errors
    /// [`Error::Ended`] if the executor is gone.
    pub(crate) async fn run(mut self) -> Result<(), Error> {
        let mut open: Option<OpenSession> = None;
        let mut tick = interval(AGENT_TICK);
        let mut retention = interval(RETENTION_INTERVAL);
        loop {
            let heartbeat_due = open.as_ref().map(|open| open.heartbeats.due());
            tokio::select! {
                () = self.shutdown.cancelled() => return Ok(()),
                Some(incoming) = self.inbox.recv() => self.incoming(incoming, &mut open).await?,
                Some(report) = self.reports.recv() => self.monitored(report).await?,
                update = self.gpus.next_update() => match update {
                    GpuUpdate::HealthChanged(gpu, health) => self.gpu_health_changed((gpu, health)).await?,
                    GpuUpdate::Xid(gpu, code) => self.health.xid(gpu, code),
                },
                () = self.executor.status_due() => self.status_changed(&mut open).await?,
                () = until(heartbeat_due) => self.send_heartbeat(&mut open, false).await?,
                _ = tick.tick() => self.tick(&mut open).await?,
                _ = retention.tick() => self.remove_old_logs(),
            }
        }
    }

    async fn incoming(
        &mut self,
        incoming: InboxItem,
        open: &mut Option<OpenSession>,
    ) -> Result<(), Error> {
        match incoming {
            InboxItem::Supervisor(id, report) => self.supervisor(id, report).await,
            InboxItem::Checkpoint(RunId { key, epoch }, report) => {
                self.step(Input::Checkpoint { key, epoch, report }).await
            }
            InboxItem::GpuHeld(gpu, held) => self.gpu_held(gpu, held).await,
            InboxItem::Damaged(RunId { key, epoch }, report) => {
                metrics::checkpoint_damaged();
                tracing::warn!(job = %key.job, task = %key.task, step = report.step, reason = report.reason,
                    "a task could not read a checkpoint");
                self.step(Input::Damaged { key, epoch, report }).await
            }
            InboxItem::Progress(RunId { key, epoch }, step) => {
                self.step(Input::Progress { key, epoch, step }).await
            }
            InboxItem::Opened(session) => {
                metrics::session_open(true);
                self.runner
                    .set_heartbeat_interval(session.timings.heartbeat_ms);
                self.step(Input::StreamOpened).await?;
                let heartbeats = Heartbeats::new(session.timings, self.clock.now());
                let output = OutputRequests::new(
                    self.logs.clone(),
                    self.tasks.clone(),
                    session.outbox.clone(),
                    session.closed.clone(),
                );
                *open = Some(OpenSession {
                    session,
                    heartbeats,
                    output,
                    offset: ClockOffset::default(),
                });
                self.send_heartbeat(open, true).await
            }
            InboxItem::Message(number, kind) => match open {
                Some(open) if open.session.number == number => self.message(kind, open).await,
                _ => Ok(()),
            },
            InboxItem::Closed(number) => {
                if open
                    .as_ref()
                    .is_some_and(|open| open.session.number == number)
                {
                    metrics::session_open(false);
                    *open = None;
                }
                Ok(())
            }
        }
    }

    async fn monitored(&mut self, report: MonitorReport) -> Result<(), Error> {
        match report {
            MonitorReport::GpuHeld(gpu, held) => self.gpu_held(gpu, held).await,
            MonitorReport::GpuMemoryInUse(gpu, held_mib) => {
                self.health.sample(memory_in_use(gpu, held_mib));
                Ok(())
            }
            MonitorReport::Found(findings) => self.step(Input::Findings(findings)).await,
            MonitorReport::OrderDone(done) => self.step(Input::HealthWorkDone(done)).await,
        }
    }

    async fn gpu_held(&mut self, gpu: GpuUuid, held: Option<GpuHold>) -> Result<(), Error> {
        match self.gpus.hold(gpu, held) {
            Some(change) => self.gpu_health_changed(change).await,
            None => Ok(()),
        }
    }

    async fn message(&mut self, kind: LeaderKind, open: &mut OpenSession) -> Result<(), Error> {
        match kind {
            LeaderKind::Desired(wire) => match DesiredState::try_from(wire) {
                Ok(desired) if desired.host == open.session.host => {
                    self.step(Input::Desired(desired)).await?;
                }
                Ok(desired) => {
                    tracing::warn!(host = %desired.host, "ignored another host's desired state")
                }
                Err(error) => {
                    tracing::error!(%error, "invalid desired state from the leader");
                    open.session.closed.cancel();
                }
            },
            LeaderKind::HeartbeatAck(ack) => {
                let now = self.clock.now();
                let took_ms =
                    open.heartbeats
                        .acknowledged(ack.sequence, ack.next_heartbeat_ms, now);
                if let (Some(took_ms), Some(leader_ms)) = (took_ms, ack.time_ms) {
                    let leader = TimeMs(leader_ms);
                    let offset = &mut open.offset;
                    if let Some(sample) = offset.answered(leader, wall_clock(), took_ms) {
                        self.health.sample(sample);
                    }
                }
                self.step(Input::HeartbeatAcknowledged {
                    leader: LeadershipEpoch(ack.leadership_epoch),
                    sequence: ack.sequence,
                })
                .await?;
            }
            LeaderKind::LogRequest(request) => open.output.begin(request),
            LeaderKind::LogCancel(cancel) => open.output.cancel(cancel.id),
            LeaderKind::InjectFault(order) => self.inject(order, open),
            LeaderKind::Debug(order) => {
                let answer = debug::answer(order, &self.settings.borrow());
                try_send(open, WorkerKind::Debug(answer));
            }
            LeaderKind::Exec(order) => {
                let tasks = self.agent.tasks();
                self.execs.begin(&open.session.leader, order, |id| {
                    let task = tasks.get(&id.key);
                    task.is_some_and(|task| task.assignment.epoch == id.epoch && task.is_alive())
                });
            }
            LeaderKind::Replicas(_) => {
                // The session keeps the addresses.
            }
            LeaderKind::Welcome(_) | LeaderKind::Rejected(_) => {
                tracing::warn!("unexpected greeting of the leader during a session");
                open.session.closed.cancel();
            }
        }
        Ok(())
    }

    fn inject(&self, order: v1::InjectFault, open: &OpenSession) {
        let outcome = match order.injection.and_then(|injection| injection.what) {
            Some(What::Signal(signal)) => self.signal(signal),
            Some(what) => self.health.inject(what, self.gpus.is_simulated()),
            None => Err("the leader sent no fault to inject".to_owned()),
        };
        let result = WorkerKind::InjectResult(v1::InjectResult {
            id: order.id,
            error: outcome.err(),
        });
        try_send(open, result);
    }

    fn signal(&self, signal: v1::InjectedSignal) -> Result<(), String> {
        let health = match signal.fault {
            Some(fault) => GpuHealth::Faulted {
                signal: fault.signal,
                detail: fault.detail,
            },
            None => GpuHealth::Healthy,
        };
        let gpu = gpu_uuid("gpu", &signal.gpu).map_err(|error| error.to_string())?;
        let injected = self.gpus.inject(gpu, health);
        injected.map_err(|error| error.to_string())
    }

    async fn supervisor(&mut self, id: RunId, report: SupervisorReport) -> Result<(), Error> {
        self.runner.start_spans().reported(id, &report);
        match &report {
            SupervisorReport::Prepared { .. } | SupervisorReport::Started => {}
            SupervisorReport::Stuck { detail, .. } => {
                tracing::error!(%id, detail, "a task cannot be killed: its GPUs stay allocated until it is gone");
                metrics::task_stuck();
                self.self_checks.stuck(id);
            }
            SupervisorReport::Exited(exit) => metrics::task_exited(exit),
            SupervisorReport::Vanished { detail } => {
                tracing::warn!(%id, detail, "a task's supervisor vanished");
                metrics::task_vanished();
            }
        }
        let report = match report {
            SupervisorReport::Exited(exit) => SupervisorReport::Exited(self.last_seen(id, exit)),
            other => other,
        };
        if matches!(
            report,
            SupervisorReport::Exited(_) | SupervisorReport::Vanished { .. }
        ) {
            self.self_checks.gone(&id);
        }
        let RunId { key, epoch } = id;
        self.step(Input::Supervisor { key, epoch, report }).await
    }

    /// Adds what the agent knows to a task's exit.
    fn last_seen(&self, id: RunId, mut exit: Exit) -> Exit {
        let task = self.agent.tasks().get(&id.key);
        let Some(task) = task.filter(|task| task.assignment.epoch == id.epoch) else {
            return exit;
        };
        let gpus = &task.assignment.gpus;
        let seen = LastMeasurements {
            busy_permille: self.uses.busy_permille(gpus, self.clock.now()),
            leftover_mib: self.uses.held_before_mib(gpus),
            step: task.progress_step,
        };
        exit.last_measurements = (seen != LastMeasurements::default()).then(|| Box::new(seen));
        exit
    }

    async fn tick(&mut self, open: &mut Option<OpenSession>) -> Result<(), Error> {
        let now = self.clock.now();
        self.systemd.iter().for_each(Systemd::notify_watchdog);
        self.step(Input::Tick).await?;
        for sample in self.self_checks.tick(now) {
            self.health.sample(sample);
        }
        self.health.resend();
        for change in self.gpus.check_silence() {
            self.gpu_health_changed(change).await?;
        }
        if let Some(open) = open
            && open.heartbeats.is_unanswered(now)
        {
            tracing::warn!("the leader acknowledges no heartbeats; looking for another one");
            open.session.closed.cancel();
        }
        if self.executor.wants_compaction() {
            self.executor.compact(self.agent.journal()).await?;
        }
        let status = self.agent.status();
        let unfit = status
            .gpus
            .iter()
            .filter(|(_, health)| *health != GpuHealth::Healthy);
        let faulted: BTreeSet<GpuUuid> = unfit.map(|(gpu, _)| *gpu).collect();
        let remaining = self
            .agent
            .next_deadline()
            .map(|deadline| deadline.since(now));
        let running = || self.agent.tasks().values().filter(|task| task.is_alive());
        let holders = running()
            .flat_map(|task| {
                let TaskAssignment { key, gpus, .. } = &*task.assignment;
                gpus.iter().map(|gpu| (*gpu, key.job))
            })
            .collect();
        self.uses.set_holders(&holders);
        self.gpu_occupancy.show(&faulted, &holders);
        metrics::levels(running().count(), remaining);
        Ok(())
    }

    /// Passes the health of a GPU to the rules; the leader gets only faults that make it unfit regardless
    /// of the rules.
    pub(crate) async fn gpu_health_changed(
        &mut self,
        (gpu, shown): HealthChange,
    ) -> Result<(), Error> {
        let health = self.gpus.unfit_by(gpu, &shown);
        self.health.gpu(gpu, shown);
        self.step(Input::GpuHealth { gpu, health }).await
    }

    /// Processes one input; leases are extended at once, other actions follow in order.
    pub(crate) async fn step(&mut self, input: Input) -> Result<(), Error> {
        if let Input::Desired(desired) = &input {
            self.health.acknowledged(desired.health.acknowledged);
        }
        let actions = self.agent.step(input, self.clock.now());
        self.health.rules(self.agent.health_rules());
        self.health.counted(self.agent.counted_findings());
        self.newest.send_if_modified(|newest| {
            let changed = *newest != self.agent.leader();
            *newest = self.agent.leader();
            changed
        });
        self.carry_out(actions).await
    }

    /// Executes actions, also those of the agent's recovery.
    pub(crate) async fn carry_out(&mut self, actions: Vec<Action>) -> Result<(), Error> {
        let mut rest = Vec::with_capacity(actions.len());
        for action in actions {
            match action {
                Action::ExtendLease {
                    key,
                    epoch,
                    deadline,
                } => self.runner.extend(RunId { key, epoch }, deadline),
                other => {
                    if let Action::Start { assignment, .. } = &other {
                        self.runner.start_spans().decided(assignment);
                    }
                    rest.push(other);
                }
            }
        }
        if rest.is_empty() {
            return Ok(());
        }
        self.executor.carry_out(rest).await
    }

    /// Sends the whole state now, or soon if it has just been sent.
    async fn status_changed(&mut self, open: &mut Option<OpenSession>) -> Result<(), Error> {
        let tasks = self.agent.tasks().len();
        let is_due = open
            .as_mut()
            .is_some_and(|open| open.heartbeats.is_status_due_now(tasks));
        if is_due {
            self.send_heartbeat(open, true).await?;
        }
        Ok(())
    }

    /// Sends a heartbeat, if there is a session.
    async fn send_heartbeat(
        &mut self,
        open: &mut Option<OpenSession>,
        changed: bool,
    ) -> Result<(), Error> {
        let Some(open) = open else {
            return Ok(());
        };
        let now = self.clock.now();
        let (sequence, whole) = open.heartbeats.next(now, changed);
        self.step(Input::HeartbeatSent { sequence }).await?;
        let mut heartbeat = self.agent.heartbeat(sequence, whole);
        name_host(&mut heartbeat, open.session.host);
        if !try_send(open, WorkerKind::Heartbeat((&heartbeat).into())) && whole {
            open.heartbeats.status_lost();
        }
        Ok(())
    }

    fn remove_old_logs(&self) {
        let live: BTreeSet<RunId> = self
            .agent
            .tasks()
            .values()
            .map(|task| RunId::of(&task.assignment))
            .collect();
        let retention = self.settings.borrow().log_retention;
        let (logs, ships) = (self.logs.clone(), self.ships);
        tokio::task::spawn_blocking(move || {
            match crate::tasks::logs::remove_old(&logs, &live, &retention, ships, wall_clock()) {
                Ok(removed) => metrics::logs_removed(removed),
                Err(error) => tracing::warn!(%error, "removing old logs failed"),
            }
        });
    }
}

/// Sample for the rule on GPU memory that is not released.
fn memory_in_use(gpu: GpuUuid, held_mib: u64) -> Sample {
    let held_mib = i64::try_from(held_mib).unwrap_or(i64::MAX);
    let mut metrics = vec![(HELD_AFTER_KILL, held_mib)];
    if held_mib == 0 {
        metrics.push((HELD, 0));
    }
    Sample::new(MEMORY_LEAK, Component::Gpu(gpu), &metrics)
}

/// Sends without waiting: a leader that does not read must not stop the loop. False: not sent.
fn try_send(open: &OpenSession, kind: WorkerKind) -> bool {
    let message = v1::WorkerMessage { kind: Some(kind) };
    let sent = open.session.outbox.try_send(message).is_ok();
    if !sent {
        tracing::debug!("dropped a message to the leader: it reads too slowly or is gone");
    }
    sent
}

/// Waits until an instant; forever if there is none.
async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}
