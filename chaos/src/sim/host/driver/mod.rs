//! Agent process on a simulated host: the real `core::agent` with a stream, a journal and supervisors.

mod health;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use muster_control::agent::{Action, Agent, Input, SupervisorReport};
use muster_model::command::{Exit, GpuHealth};
use muster_model::desired::{DesiredState, TaskAssignment};
use muster_model::health::Order;
use muster_model::ids::{GpuUuid, HostId};
use muster_model::time::MonotonicMs;
use muster_scheduler::leader::{CloseReason, ToWorker};
use tokio::sync::mpsc;
use tokio::time::Instant;

use self::health::{HEALTH_WORK, name_host};
use crate::checkers::Owner;
use crate::sim::clock::SimClock;
use crate::sim::faults::coverage::Situation;
use crate::sim::host::heartbeats::Heartbeats;
use crate::sim::host::sensors::HostMonitor;
use crate::sim::host::{AgentLink, SimHost, lock};
use crate::sim::links::gateway::Stream;
use crate::sim::mutant::Mutant;
use crate::sim::supervisors::Behaviour;

/// Time for one journal record to reach the disk.
const JOURNAL_SYNC: Duration = Duration::from_micros(700);
/// Pause between two attempts to reach a leader.
const DIAL_PAUSE: Duration = Duration::from_millis(150);
/// Maximum time for a leader to welcome a worker, which includes committing the registration.
const WELCOME_MAX: Duration = Duration::from_secs(3);
/// Queue capacity for reports of a host's supervisors; a host runs a handful of tasks.
const REPORTS_MAX: usize = 1_024;

/// Number of past orders that may arrive again.
const OLD_ORDERS_MAX: usize = 8;

/// Memory of an agent process.
pub(super) struct AgentDriver {
    host: SimHost,
    reports: mpsc::Receiver<(Owner, SupervisorReport)>,
    known_gpus: BTreeMap<GpuUuid, GpuHealth>,
    /// Repairs and checks in progress, with their end times.
    health_work: Vec<(Order, Instant)>,
    watch: HostMonitor,
    /// Time of the next sensor reading.
    next_look: Instant,
    /// The cluster's number of this host.
    id: HostId,
    pending: Vec<Action>,
    next_replica: usize,
    /// The last orders, oldest first.
    old_orders: VecDeque<DesiredState>,
}

/// Reason for the end of a stream.
enum Ended {
    Closed,
    Redirected,
}

impl AgentDriver {
    pub(super) fn recover(host: SimHost) -> Self {
        let (report, reports) = mpsc::channel(REPORTS_MAX);
        host.supervisors.attach(report);
        let found = host.supervisors.found();
        let records = lock(&host.disk).journal.clone();
        let (agent, pending) = Agent::recover(records, found);
        let adopted = agent.tasks().values().filter(|task| task.is_alive());
        for _ in adopted {
            host.reached(Situation::TaskAdopted);
        }
        let next_replica = host.settings.number as usize;
        *lock(&host.agent) = agent;
        *lock(&host.link) = AgentLink::default();
        let watch = HostMonitor::recover(host.clone());
        Self {
            host,
            watch,
            next_look: Instant::now(),
            id: HostId(0),
            reports,
            known_gpus: BTreeMap::new(),
            pending,
            next_replica,
            old_orders: VecDeque::new(),
            health_work: Vec::new(),
        }
    }

    pub(super) async fn run(mut self) {
        let pending = std::mem::take(&mut self.pending);
        self.act(pending).await;
        let unacknowledged = self.watch.unacknowledged();
        self.found(unacknowledged).await;
        loop {
            let leader_seen = lock(&self.host.agent).leader();
            let replica = self.host.replicas[self.next_replica % self.host.replicas.len()];
            let dialled = self
                .host
                .gateway
                .dial(
                    &self.host.network,
                    self.host.agent_node(),
                    replica,
                    self.host.registration(),
                    leader_seen,
                    self.host.can_hold(),
                )
                .await;
            let ended = match dialled {
                Some(stream) => {
                    lock(&self.host.link).replica = Some(replica);
                    self.serve(stream).await
                }
                None => Ended::Closed,
            };
            *lock(&self.host.link) = AgentLink::default();
            if matches!(ended, Ended::Closed) {
                self.next_replica += 1;
            }
            self.wait_between_streams().await;
        }
    }

    /// Handles reports of supervisors while there is no stream.
    async fn wait_between_streams(&mut self) {
        tokio::time::sleep(DIAL_PAUSE).await;
        while let Ok((owner, report)) = self.reports.try_recv() {
            self.apply_report(owner, report).await;
        }
        self.step(Input::Tick).await;
    }

    /// Waits for the welcome, as the real session does: earlier messages are ignored.
    async fn be_welcomed(&mut self, stream: &mut Stream) -> Result<(), Ended> {
        let deadline = Instant::now() + WELCOME_MAX;
        loop {
            tokio::select! {
                biased;
                message = stream.down.recv() => match message {
                    Some(ToWorker::Welcome { host, .. }) => {
                        self.id = host;
                        return Ok(());
                    }
                    Some(ToWorker::Close(reason)) => return Err(self.closed(reason)),
                    Some(_) | None => return Err(Ended::Closed),
                },
                Some((owner, report)) = self.reports.recv() => {
                    self.apply_report(owner, report).await;
                }
                () = tokio::time::sleep_until(deadline) => return Err(Ended::Closed),
            }
        }
    }

    async fn serve(&mut self, mut stream: Stream) -> Ended {
        if let Err(ended) = self.be_welcomed(&mut stream).await {
            return ended;
        }
        self.step(Input::StreamOpened).await;
        let timings = self.host.settings.timings;
        let mut whole = true;
        let mut heartbeats = Heartbeats::new(timings);
        loop {
            let changed = tokio::select! {
                biased;
                message = stream.down.recv() => match message {
                    Some(ToWorker::Close(reason)) => return self.closed(reason),
                    Some(message) => {
                        if let ToWorker::HeartbeatAck { sequence, next_heartbeat_ms, .. } = &message {
                            heartbeats.answered(*next_heartbeat_ms, timings);
                            lock(&self.host.link).acknowledged = *sequence;
                        }
                        self.apply_message(message).await
                    }
                    None => return Ended::Closed,
                },
                Some((owner, report)) = self.reports.recv() => self.apply_report(owner, report).await,
                () = tokio::time::sleep_until(heartbeats.next) => {
                    whole |= self.look_at_gpus().await | self.step(Input::Tick).await;
                    whole |= self.look_at_host().await;
                    whole |= self.work_on_health().await;
                    whole |= self.repeat_old_order().await;
                    if heartbeats.is_unanswered(timings) {
                        return Ended::Closed;
                    }
                    heartbeats.next = Instant::now();
                    false
                }
            };
            whole |= changed;
            if changed || heartbeats.next <= Instant::now() {
                heartbeats.sequence += 1;
                let sequence = heartbeats.sequence;
                lock(&self.host.link).sequence = sequence;
                self.step(Input::HeartbeatSent { sequence }).await;
                let mut heartbeat = lock(&self.host.agent).heartbeat(sequence, whole);
                name_host(&mut heartbeat, self.id);
                if stream.up.try_send(heartbeat).is_err() {
                    return Ended::Closed;
                }
                whole = false;
                heartbeats.sent();
            }
        }
    }

    fn closed(&mut self, reason: CloseReason) -> Ended {
        if let CloseReason::NotLeader {
            leader: Some(leader),
        } = &reason
            && let Some(position) = self
                .host
                .replicas
                .iter()
                .position(|node| u64::from(node.0) == leader.id)
        {
            self.next_replica = position;
            return Ended::Redirected;
        }
        Ended::Closed
    }

    async fn apply_message(&mut self, message: ToWorker) -> bool {
        match message {
            ToWorker::Desired(order) => {
                if self.old_orders.len() == OLD_ORDERS_MAX {
                    self.old_orders.pop_front();
                }
                self.old_orders.push_back((*order).clone());
                self.ordered(*order).await
            }
            ToWorker::HeartbeatAck {
                leader,
                sequence,
                next_heartbeat_ms,
            } => {
                if next_heartbeat_ms.is_some() {
                    self.host.reached(Situation::HeartbeatsStretched);
                }
                self.step(Input::HeartbeatAcknowledged { leader, sequence })
                    .await
            }
            _ => false,
        }
    }

    /// Handles an order, new or old, and reports to the checkers whether the agent acts on it.
    async fn ordered(&mut self, mut order: DesiredState) -> bool {
        let (leader, revision) = (order.leader, order.revision);
        if self.host.settings.mutant == Some(Mutant::ObeyOldOrders) {
            let agent = lock(&self.host.agent);
            order.leader = leader.max(agent.leader());
            order.revision = revision.max(agent.desired_revision());
        }
        let (ordered, acknowledged) = (order.revision, order.health.acknowledged);
        let is_status_due = self.step(Input::Desired(order)).await;
        if lock(&self.host.agent).desired_revision() == ordered {
            let host = self.host.settings.number;
            self.watch.acknowledge(acknowledged);
            let counted = lock(&self.host.agent).counted_findings().clone();
            self.watch.compare(&counted);
            self.host
                .checkers
                .with(|seen| seen.obedience.obeyed(host, leader, revision));
        } else {
            self.host.reached(Situation::OldOrderRefused);
        }
        is_status_due
    }

    /// Delivers an old order again, as a network may do.
    async fn repeat_old_order(&mut self) -> bool {
        if !std::mem::take(&mut *lock(&self.host.repeats_order)) {
            return false;
        }
        match self.old_orders.front().cloned() {
            Some(order) => self.ordered(order).await,
            None => false,
        }
    }

    async fn apply_report(&mut self, owner: Owner, report: SupervisorReport) -> bool {
        let Owner { key, epoch } = owner;
        let mutant = self.host.settings.mutant;
        let report = match report {
            SupervisorReport::Exited(exit)
                if mutant == Some(Mutant::FalseSuccess) && exit.signal.is_some() =>
            {
                SupervisorReport::Exited(ended_well())
            }
            report => report,
        };
        if matches!(report, SupervisorReport::Stuck { .. }) {
            // The GPUs first, as in the real agent: they must not be considered free.
            self.look_at_gpus().await;
        }
        self.step(Input::Supervisor { key, epoch, report }).await
    }

    /// Executes one step of the agent; returns true if the leader should be notified at once.
    async fn step(&mut self, input: Input) -> bool {
        let now = self.host.clock.monotonic();
        let actions = lock(&self.host.agent).step(input, now);
        let is_status_due = actions.contains(&Action::SendStatus);
        self.act(actions).await;
        is_status_due
    }

    async fn act(&mut self, actions: Vec<Action>) {
        let supervisors = self.host.supervisors.clone();
        let mutant = self.host.settings.mutant;
        let stretch = Mutant::lease_stretch(mutant);
        for action in actions {
            match action {
                Action::Journal(record) => {
                    tokio::time::sleep(JOURNAL_SYNC).await;
                    if mutant == Some(Mutant::ForgetfulJournal) {
                        continue;
                    }
                    lock(&self.host.disk).journal.push(record);
                }
                Action::Start {
                    assignment,
                    deadline,
                } => {
                    let deadline = stretched(&self.host.clock, deadline, stretch);
                    let behaviour = behaviour(&assignment);
                    if *lock(&self.host.lacks_accounts) {
                        supervisors.refuse(&assignment, deadline, behaviour);
                    } else {
                        supervisors.start(&assignment, deadline, behaviour);
                    }
                    if mutant == Some(Mutant::BeginsAlone) {
                        let (key, epoch) = (assignment.key, assignment.epoch);
                        supervisors.begin(Owner { key, epoch });
                    }
                }
                Action::Begin { key, epoch, .. } => supervisors.begin(Owner { key, epoch }),
                // Simulated tasks do not talk to each other.
                Action::Renew { .. } => {}
                Action::Suspend {
                    key,
                    epoch,
                    suspended,
                } => supervisors.suspend(Owner { key, epoch }, suspended),
                Action::Stop {
                    key,
                    epoch,
                    grace_ms,
                    ..
                } => {
                    supervisors.stop(Owner { key, epoch }, grace_ms);
                }
                Action::ExtendLease {
                    key,
                    epoch,
                    deadline,
                } => {
                    let deadline = stretched(&self.host.clock, deadline, stretch);
                    supervisors.extend(Owner { key, epoch }, deadline);
                }
                Action::Release { key, epoch } => supervisors.release(Owner { key, epoch }),
                Action::HealthWork(order) => {
                    self.health_work.push((order, Instant::now() + HEALTH_WORK));
                }
                Action::RemoveCheckpoint { .. } | Action::SendStatus => {}
            }
        }
    }
}

fn ended_well() -> Exit {
    Exit {
        code: Some(0),
        ..Exit::default()
    }
}

fn stretched(clock: &SimClock, deadline: MonotonicMs, stretch: u64) -> MonotonicMs {
    let now = clock.monotonic();
    now.after(deadline.since(now).saturating_mul(stretch))
}

/// Parses a simulated task's behaviour from its environment.
fn behaviour(assignment: &TaskAssignment) -> Behaviour {
    let number = |name: &str, default: u64| {
        let text = assignment.environment.get(name);
        text.and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    Behaviour {
        run_ms: number("RUN_MS", 1_000),
        exit_code: i32::try_from(number("EXIT_CODE", 0)).unwrap_or(1),
        heeds_stop: number("HEEDS_STOP", 1) == 1,
        // A driver hangs now and then, whatever the job: at the end of every second attempt.
        hang_ms: number("HANG_MS", 0) * (assignment.epoch.0 % 2),
    }
}
