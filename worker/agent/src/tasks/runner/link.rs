//! Connection to one supervisor, from its start or adoption to its end.

use std::future::pending;
use std::time::Duration;

use muster_control::agent::SupervisorReport;
use muster_model::command::Exit;
use muster_model::desired::Rendezvous;
use muster_model::ids::GpuUuid;
use muster_monitor::gpu::GpuHold;
use muster_supervisor::lease::clock::boottime_ms;
use muster_supervisor::limits::{LEASE_TICK, SUPERVISOR_OVERDUE_MS_MAX, UNKILLABLE_MS};
use muster_supervisor::process::ProcessIdentity;
use muster_supervisor::{AgentRequest, RunId, SupervisorMessage, TaskDirectory, UnkillableTask};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::inbox::{InboxItem, Outbox};
use crate::tasks::cpus::CpuGrant;
use crate::tasks::runner::connection::SupervisorConnection;
use crate::tasks::runner::idle::IdleSupervisors;
use crate::tasks::runner::launch::Launched;
use crate::tasks::runner::{ConnectionEnd, leftovers, send};

/// Time for a supervisor that closed the connection to end.
const END_MAX: Duration = Duration::from_secs(2);
/// Bytes of a supervisor's last output that are reported.
const LAST_OUTPUT_BYTES_MAX: usize = 1_024;
/// Pause between attempts to kill an unkillable task.
const UNKILLABLE_RETRY: Duration = Duration::from_secs(1);

/// Detail of processes of a task without a supervisor.
const LEFT_OVER: &str = "its remaining processes hang in the kernel and cannot be killed";

/// Orders of the agent to one supervisor.
#[derive(Debug)]
pub(super) struct Orders {
    /// The newest end of the lease, in milliseconds of `CLOCK_BOOTTIME`.
    pub(super) deadlines: watch::Receiver<u64>,
    /// The newest rendezvous of the gang; older ones are obsolete.
    pub(super) meetings: watch::Receiver<Option<Rendezvous>>,
    /// Orders to begin, suspend, resume and stop.
    pub(super) requests: mpsc::Receiver<AgentRequest>,
    /// The last order to suspend or resume that arrived before there was a supervisor.
    kept: Option<AgentRequest>,
}

impl Orders {
    /// Orders received on these channels.
    pub(super) const fn new(
        deadlines: watch::Receiver<u64>,
        rendezvous: watch::Receiver<Option<Rendezvous>>,
        requests: mpsc::Receiver<AgentRequest>,
    ) -> Self {
        Self {
            deadlines,
            meetings: rendezvous,
            requests,
            kept: None,
        }
    }

    /// The newest end of the lease, in milliseconds of `CLOCK_BOOTTIME`.
    pub(super) fn deadline_boottime_ms(&self) -> u64 {
        *self.deadlines.borrow()
    }

    /// Runs the preparation of a start, unless the task is stopped before.
    ///
    /// # Errors
    /// The reason why there is no start.
    pub(super) async fn unless_stopped(
        &mut self,
        preparation: impl Future<Output = Result<(), String>>,
    ) -> Result<(), String> {
        let Self { requests, kept, .. } = self;
        let stopped = async {
            loop {
                match next_request(requests).await {
                    AgentRequest::Stop { .. } => return,
                    request @ (AgentRequest::Suspend | AgentRequest::Resume) => {
                        *kept = Some(request)
                    }
                    // A gang does not begin before this member is prepared, and all other orders need an
                    // answer of a running supervisor.
                    _ => {}
                }
            }
        };
        tokio::select! {
            prepared = preparation => prepared,
            () = stopped => Err("it was stopped before it started".to_owned()),
        }
    }
}

/// Connection to one supervisor.
#[derive(Debug)]
pub(super) struct SupervisorLink {
    id: RunId,
    directory: TaskDirectory,
    orders: Orders,
    inbox: Outbox,
    /// Time by which the task must be dead after the newest order to stop.
    kill_at_boottime_ms: Option<u64>,
    /// The CPUs that the task is bound to, until it has ended.
    cpus: Option<CpuGrant>,
    /// The GPUs that it holds although its end was reported, because it cannot be killed.
    held: Vec<GpuUuid>,
    /// Whether it was reported that it cannot be killed.
    is_stuck: bool,
    /// Pool for a supervisor that can take another task.
    idle: Option<IdleSupervisors>,
}

/// Reasons why the connection ended.
enum LinkEnd {
    /// The supervisor reported the exit, which is on disk too: no process of the task is alive.
    Exited(Exit),
    /// The supervisor closed the connection.
    HungUp,
    /// It did not kill its task when it had to: it is frozen.
    Overdue,
}

impl SupervisorLink {
    pub(super) const fn new(
        id: RunId,
        directory: TaskDirectory,
        orders: Orders,
        inbox: Outbox,
    ) -> Self {
        Self {
            id,
            directory,
            orders,
            inbox,
            kill_at_boottime_ms: None,
            cpus: None,
            held: Vec::new(),
            is_stuck: false,
            idle: None,
        }
    }

    /// Sets the CPUs that the task is bound to.
    pub(super) fn holding(self, cpus: Option<CpuGrant>) -> Self {
        Self { cpus, ..self }
    }

    /// Sets the pool to which the supervisor may return afterwards.
    pub(super) fn returning_to(self, idle: IdleSupervisors) -> Self {
        let idle = Some(idle);
        Self { idle, ..self }
    }

    /// Runs until the task ends, and reports that.
    pub(super) async fn run(mut self, launched: Launched) -> ConnectionEnd {
        let Launched {
            connection,
            supervisor,
            child,
            stuck,
        } = launched;
        if let Some(stuck) = stuck {
            self.stuck(stuck).await;
        }
        let mut left = ConnectionEnd::default();
        let ending = match connection.open() {
            Ok(mut connection) => {
                let ending = self.run_connection(&mut connection).await;
                if let (Some(idle), Some(supervisor)) = (self.idle.take(), supervisor) {
                    left.keeps_cgroups = idle.take_back(connection, supervisor);
                }
                ending
            }
            Err(error) => {
                tracing::warn!(id = %self.id, %error, "communication with a supervisor failed");
                LinkEnd::HungUp
            }
        };
        let report = self.conclude(ending, supervisor).await;
        self.report(report).await;
        if let Some(mut child) = child {
            // It has ended, or is about to: this only reaps it.
            let collected = tokio::task::spawn_blocking(move || child.wait()).await;
            tracing::trace!(id = %self.id, ?collected, "reaped a supervisor");
        }
        left
    }

    /// Kills the processes of a task from an earlier agent until all of them are dead, and reports that.
    pub(super) async fn end(mut self, supervisor: Option<ProcessIdentity>) -> ConnectionEnd {
        let report = self.conclude(LinkEnd::HungUp, supervisor).await;
        self.report(report).await;
        ConnectionEnd::default()
    }

    async fn report(&mut self, report: SupervisorReport) {
        // A task started because of the report may be bound to the same CPUs.
        self.cpus = None;
        tracing::info!(id = %self.id, ?report, "the task's supervisor has ended");
        send(&self.inbox, InboxItem::Supervisor(self.id, report)).await;
        for gpu in std::mem::take(&mut self.held) {
            send(&self.inbox, InboxItem::GpuHeld(gpu, None)).await;
        }
    }

    /// Handles a task that cannot be killed: its end is reported, and its GPUs are unfit until it is gone.
    async fn stuck(&mut self, stuck: UnkillableTask) {
        self.is_stuck = true;
        // The GPUs first, so that they are not taken for free.
        let spec = self.directory.read_spec().ok().flatten();
        self.held = spec.map(|spec| spec.assignment.gpus).unwrap_or_default();
        let UnkillableTask { detail, exit } = stuck;
        for gpu in &self.held {
            let hold = GpuHold::Task(format!("{} of task {}", detail, self.id));
            send(&self.inbox, InboxItem::GpuHeld(*gpu, Some(hold))).await;
        }
        let report = SupervisorReport::Stuck { detail, exit };
        send(&self.inbox, InboxItem::Supervisor(self.id, report)).await;
    }

    async fn run_connection(&mut self, connection: &mut SupervisorConnection) -> LinkEnd {
        if let Some(request) = self.orders.kept.take()
            && connection.send(&request).await.is_err()
        {
            return LinkEnd::HungUp;
        }
        let mut tick = tokio::time::interval(LEASE_TICK);
        loop {
            let request = tokio::select! {
                line = connection.next_line() => match line {
                    Ok(Some(line)) => {
                        match self.forward_message(&line).await {
                            Some(exit) => return LinkEnd::Exited(exit),
                            None => continue,
                        }
                    }
                    Ok(None) | Err(_) => return LinkEnd::HungUp,
                },
                deadline_boottime_ms = next_deadline(&mut self.orders.deadlines) => {
                    AgentRequest::Extend { deadline_boottime_ms }
                }
                rendezvous = next_rendezvous(&mut self.orders.meetings) => {
                    AgentRequest::Renew(rendezvous)
                }
                request = next_request(&mut self.orders.requests) => self.note_stop(request),
                _ = tick.tick() => {
                    if self.is_overdue() {
                        return LinkEnd::Overdue;
                    }
                    continue;
                }
            };
            if connection.send(&request).await.is_err() {
                return LinkEnd::HungUp;
            }
        }
    }

    /// Forwards a message; the last one contains the exit.
    async fn forward_message(&mut self, line: &str) -> Option<Exit> {
        match serde_json::from_str(line) {
            Ok(SupervisorMessage::Prepared { master_port }) => {
                let report = SupervisorReport::Prepared { master_port };
                send(&self.inbox, InboxItem::Supervisor(self.id, report)).await;
                None
            }
            Ok(SupervisorMessage::Started { .. }) => {
                let report = InboxItem::Supervisor(self.id, SupervisorReport::Started);
                send(&self.inbox, report).await;
                None
            }
            Ok(SupervisorMessage::Checkpoint(report)) => {
                send(&self.inbox, InboxItem::Checkpoint(self.id, report)).await;
                None
            }
            Ok(SupervisorMessage::Damaged(report)) => {
                send(&self.inbox, InboxItem::Damaged(self.id, report)).await;
                None
            }
            Ok(SupervisorMessage::Progress { step }) => {
                send(&self.inbox, InboxItem::Progress(self.id, step)).await;
                None
            }
            Ok(SupervisorMessage::Stuck(stuck)) => {
                self.stuck(stuck).await;
                None
            }
            Ok(SupervisorMessage::Exited(exit)) => Some(exit),
            Ok(SupervisorMessage::Status { .. } | SupervisorMessage::Idle { .. }) => None,
            Err(error) => {
                tracing::warn!(id = %self.id, %error, "unknown message of a supervisor");
                None
            }
        }
    }

    fn note_stop(&mut self, request: AgentRequest) -> AgentRequest {
        if let AgentRequest::Stop { grace_ms, .. } = &request {
            let kill_at = boottime_ms().saturating_add(*grace_ms);
            let earliest = self
                .kill_at_boottime_ms
                .map_or(kill_at, |known| known.min(kill_at));
            self.kill_at_boottime_ms = Some(earliest);
        }
        request
    }

    /// Whether the supervisor should have killed the task long ago.
    fn is_overdue(&self) -> bool {
        let lease_end = *self.orders.deadlines.borrow();
        let end = self
            .kill_at_boottime_ms
            .map_or(lease_end, |kill_at| kill_at.min(lease_end));
        boottime_ms() > end.saturating_add(SUPERVISOR_OVERDUE_MS_MAX)
            // A task that hangs in the kernel cannot be killed: its supervisor keeps trying.
            && self.directory.supervisor().ok().flatten().is_none_or(is_frozen)
    }

    async fn conclude(
        &mut self,
        ending: LinkEnd,
        supervisor: Option<ProcessIdentity>,
    ) -> SupervisorReport {
        match ending {
            LinkEnd::Exited(exit) => return SupervisorReport::Exited(exit),
            LinkEnd::HungUp => wait_for_end(supervisor).await,
            LinkEnd::Overdue => {}
        }
        let directory = self.directory.clone();
        let mut exit = recorded_exit(&directory);
        if exit.is_none() {
            // Nothing new may start on its GPUs before all of its processes are dead.
            let give_up_at = Instant::now() + Duration::from_millis(UNKILLABLE_MS);
            while !kill_all(directory.clone(), supervisor).await {
                if Instant::now() >= give_up_at && !self.is_stuck {
                    self.stuck(UnkillableTask {
                        detail: LEFT_OVER.to_owned(),
                        exit: None,
                    })
                    .await;
                }
                tokio::time::sleep(UNKILLABLE_RETRY).await;
            }
            exit = recorded_exit(&directory);
        }
        match exit {
            Some(exit) => SupervisorReport::Exited(exit),
            None => SupervisorReport::Vanished {
                detail: detail(&ending, &directory),
            },
        }
    }
}

/// Whether a process is stopped (or gone) rather than busy.
pub(super) fn is_frozen(process: ProcessIdentity) -> bool {
    std::fs::read_to_string(format!("/proc/{}/status", process.pid)).map_or(true, |status| {
        status
            .lines()
            .any(|line| line.starts_with("State:") && (line.contains('T') || line.contains('Z')))
    })
}

/// The next new end of the lease; pending forever once the sender is dropped.
async fn next_deadline(deadlines: &mut watch::Receiver<u64>) -> u64 {
    if deadlines.changed().await.is_err() {
        pending::<()>().await;
    }
    *deadlines.borrow_and_update()
}

/// The next rendezvous of the gang; pending forever once the sender is dropped. Cancel safe.
async fn next_rendezvous(meetings: &mut watch::Receiver<Option<Rendezvous>>) -> Rendezvous {
    while meetings.changed().await.is_ok() {
        let rendezvous = meetings.borrow_and_update().clone();
        if let Some(rendezvous) = rendezvous {
            return rendezvous;
        }
    }
    pending().await
}

/// The next order to begin or to stop; pending forever once the sender is dropped.
async fn next_request(requests: &mut mpsc::Receiver<AgentRequest>) -> AgentRequest {
    match requests.recv().await {
        Some(request) => request,
        None => pending().await,
    }
}

/// Waits a limited time for a supervisor that closed the connection to end.
async fn wait_for_end(supervisor: Option<ProcessIdentity>) {
    let gone = async {
        while supervisor.is_some_and(|process| process.is_alive()) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    if tokio::time::timeout(END_MAX, gone).await.is_err() {
        tracing::warn!(
            ?supervisor,
            "a supervisor closed the connection but does not end"
        );
    }
}

async fn kill_all(directory: TaskDirectory, supervisor: Option<ProcessIdentity>) -> bool {
    tokio::task::spawn_blocking(move || leftovers::kill_all(&directory, supervisor))
        .await
        .unwrap_or(false)
}

/// The exit of a task, if it is recorded. A record torn by a power cut is ignored: the agent's journal
/// decides, and after a power cut no process of the task is alive.
pub(super) fn recorded_exit(directory: &TaskDirectory) -> Option<Exit> {
    match directory.exit() {
        Ok(record) => record.map(|record| record.exit),
        Err(error) => {
            tracing::warn!(path = %directory.path().display(), %error, "reading the exit record of a task failed");
            None
        }
    }
}

fn detail(ending: &LinkEnd, directory: &TaskDirectory) -> String {
    let what = match ending {
        LinkEnd::Exited(_) | LinkEnd::HungUp => "its supervisor vanished",
        LinkEnd::Overdue => {
            "its supervisor was frozen past the task's lease or grace and was killed"
        }
    };
    let text = std::fs::read_to_string(directory.supervisor_errors()).unwrap_or_default();
    let last_output: String = text.trim().chars().take(LAST_OUTPUT_BYTES_MAX).collect();
    if last_output.is_empty() {
        what.to_owned()
    } else {
        format!("{what}; its last output: {last_output}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_pause_request_that_arrives_while_a_gpu_is_awaited_is_kept() {
        let (_lease, deadlines) = watch::channel(0);
        let (_gang, meetings) = watch::channel(None);
        let (agent, requests) = mpsc::channel(4);
        let mut orders = Orders::new(deadlines, meetings, requests);
        let (suspend, resume) = (AgentRequest::Suspend, AgentRequest::Resume);
        for order in [&suspend, &resume, &suspend, &AgentRequest::Status] {
            agent.try_send(order.clone()).expect("room");
        }
        // The GPU is free once all of them have arrived.
        let preparation = async {
            while agent.capacity() < agent.max_capacity() {
                tokio::task::yield_now().await;
            }
            Ok(())
        };
        assert_eq!(orders.unless_stopped(preparation).await, Ok(()));
        assert_eq!(orders.kept, Some(suspend));
    }

    #[tokio::test]
    async fn the_meeting_of_a_gang_is_sent_although_other_orders_wait() {
        let home = tempfile::tempdir().expect("a folder");
        let (outbox, _incoming) = crate::inbox::inbox();
        let runner = crate::testing::runner(crate::testing::runner_config(home.path()), outbox);
        let id: RunId = "7-0-11".parse().expect("an attempt");
        let (give, given) = tokio::sync::oneshot::channel();
        runner.hold(id, 0, |orders, _inbox| async move {
            give.send(orders).ok();
            ConnectionEnd::default()
        });
        let mut orders = given.await.expect("its orders");
        // More than the channel holds.
        for _ in 0..=super::super::ORDERS_WAITING_MAX {
            runner.suspend(id, true);
        }
        let meeting = |master_port| Rendezvous {
            master_port,
            ..Rendezvous::default()
        };
        runner.renew(id, meeting(1));
        runner.renew(id, meeting(2));
        assert_eq!(next_rendezvous(&mut orders.meetings).await, meeting(2));
    }
}
