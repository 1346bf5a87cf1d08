//! The agent's process on a simulated host: the real `core::agent` with a stream, a journal and supervisors.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use muster_core::agent::{Action, Agent, Input, SupervisorReport};
use muster_core::beat::WorkDone;
use muster_core::command::{Exit, GpuHealth};
use muster_core::desired::{DesiredState, TaskAssignment};
use muster_core::health::book::Order;
use muster_core::health::rules::DeviceAction;
use muster_core::health::{Component, Finding, Severity};
use muster_core::ids::GpuUuid;
use muster_core::time::{MonotonicMs, TimeMs};
use muster_scheduler::leader::{CloseReason, ToWorker};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::beats::Beats;
use super::{AgentLink, SimHost, lock};
use crate::check::Owner;
use crate::sim::clock::SimClock;
use crate::sim::coverage::Situation;
use crate::sim::gateway::Stream;
use crate::sim::mutant::Mutant;
use crate::sim::supervisors::Behaviour;

/// Time that one journal record takes to reach the disk.
const JOURNAL_SYNC: Duration = Duration::from_micros(700);
/// Pause between two attempts to reach a leader.
const DIAL_PAUSE: Duration = Duration::from_millis(150);
/// How long a leader may take to welcome a worker: it commits the registration meanwhile.
const WELCOME_MAX: Duration = Duration::from_secs(3);
/// Reports of a host's supervisors that may wait for its agent; a host runs a handful of tasks.
const REPORTS_MAX: usize = 1_024;

/// How long a repair or a check takes.
const HEALTH_WORK: Duration = Duration::from_secs(3);
/// Orders that may arrive once more.
const OLD_ORDERS_MAX: usize = 8;

/// What an agent process holds in memory.
pub(super) struct AgentDriver {
    host: SimHost,
    reports: mpsc::Receiver<(Owner, SupervisorReport)>,
    known_gpus: BTreeMap<GpuUuid, GpuHealth>,
    /// Repairs and checks that are under way, and when they end.
    health_work: Vec<(Order, Instant)>,
    pending: Vec<Action>,
    next_replica: usize,
    /// The last orders, oldest first.
    old_orders: VecDeque<DesiredState>,
}

/// Why a stream is over.
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
        Self {
            host,
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
        loop {
            let leader_seen = lock(&self.host.agent).leader();
            let replica = self.host.replicas[self.next_replica % self.host.replicas.len()];
            let dialled = self
                .host
                .gateway
                .dial(
                    &self.host.network,
                    (self.host.agent_node(), replica),
                    self.host.registration(),
                    (leader_seen, self.host.can_hold()),
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

    /// Supervisors are heard also while there is no stream.
    async fn wait_between_streams(&mut self) {
        tokio::time::sleep(DIAL_PAUSE).await;
        while let Ok((owner, report)) = self.reports.try_recv() {
            self.heard(owner, report).await;
        }
        self.step(Input::Tick).await;
    }

    /// Waits for the welcome, as the real session does: what is said before it is not listened to.
    async fn be_welcomed(&mut self, stream: &mut Stream) -> Result<(), Ended> {
        let deadline = Instant::now() + WELCOME_MAX;
        loop {
            tokio::select! {
                biased;
                message = stream.down.recv() => match message {
                    Some(ToWorker::Welcome { .. }) => return Ok(()),
                    Some(ToWorker::Close(reason)) => return Err(self.closed(reason)),
                    Some(_) | None => return Err(Ended::Closed),
                },
                Some((owner, report)) = self.reports.recv() => {
                    self.heard(owner, report).await;
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
        let mut beats = Beats::new(timings);
        loop {
            let changed = tokio::select! {
                biased;
                message = stream.down.recv() => match message {
                    Some(ToWorker::Close(reason)) => return self.closed(reason),
                    Some(message) => {
                        if let ToWorker::BeatAck { sequence, next_beat_ms, .. } = &message {
                            beats.answered(*next_beat_ms, timings);
                            lock(&self.host.link).acknowledged = *sequence;
                        }
                        self.told(message).await
                    }
                    None => return Ended::Closed,
                },
                Some((owner, report)) = self.reports.recv() => self.heard(owner, report).await,
                () = tokio::time::sleep_until(beats.next) => {
                    whole |= self.look_at_gpus().await | self.step(Input::Tick).await;
                    whole |= self.work_on_health().await;
                    whole |= self.hear_old_order().await;
                    if beats.is_unanswered(timings) {
                        return Ended::Closed;
                    }
                    beats.next = Instant::now();
                    false
                }
            };
            whole |= changed;
            if changed || beats.next <= Instant::now() {
                beats.sequence += 1;
                let sequence = beats.sequence;
                lock(&self.host.link).sequence = sequence;
                self.step(Input::BeatSent { sequence }).await;
                let beat = lock(&self.host.agent).beat(sequence, whole);
                if stream.up.try_send(beat).is_err() {
                    return Ended::Closed;
                }
                whole = false;
                beats.sent();
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

    async fn told(&mut self, message: ToWorker) -> bool {
        match message {
            ToWorker::Desired(order) => {
                if self.old_orders.len() == OLD_ORDERS_MAX {
                    self.old_orders.pop_front();
                }
                self.old_orders.push_back((*order).clone());
                self.ordered(*order).await
            }
            ToWorker::BeatAck {
                leader,
                sequence,
                next_beat_ms,
            } => {
                if next_beat_ms.is_some() {
                    self.host.reached(Situation::BeatsStretched);
                }
                self.step(Input::BeatAcknowledged { leader, sequence })
                    .await
            }
            _ => false,
        }
    }

    /// An order arrives, new or old; the judges hear whether the agent acts on it.
    async fn ordered(&mut self, mut order: DesiredState) -> bool {
        let (leader, revision) = (order.leader, order.revision);
        if self.host.settings.mutant == Some(Mutant::ObeyOldOrders) {
            let agent = lock(&self.host.agent);
            order.leader = leader.max(agent.leader());
            order.revision = revision.max(agent.desired_revision());
        }
        let told = order.revision;
        let tell = self.step(Input::Desired(order)).await;
        if lock(&self.host.agent).desired_revision() == told {
            let host = self.host.settings.number;
            self.host
                .judges
                .with(|seen| seen.obedience.obeyed(host, leader, revision));
        } else {
            self.host.reached(Situation::OldOrderRefused);
        }
        tell
    }

    /// The network may bring an order once more.
    async fn hear_old_order(&mut self) -> bool {
        if !std::mem::take(&mut *lock(&self.host.repeats_order)) {
            return false;
        }
        match self.old_orders.front().cloned() {
            Some(order) => self.ordered(order).await,
            None => false,
        }
    }

    async fn heard(&mut self, owner: Owner, report: SupervisorReport) -> bool {
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
            // The GPUs first, as the real agent does it: nobody may take them for free.
            self.look_at_gpus().await;
        }
        self.step(Input::Supervisor { key, epoch, report }).await
    }

    /// Repairs and checks that have taken their time: a reset and a reboot work, a check is passed by what is healthy.
    async fn work_on_health(&mut self) -> bool {
        let now = Instant::now();
        let (over, left) = std::mem::take(&mut self.health_work)
            .into_iter()
            .partition(|(_, ends)| *ends <= now);
        self.health_work = left;
        let mut changed = false;
        let over: Vec<(Order, Instant)> = over;
        for (order, _) in over {
            let passed = order.action != DeviceAction::Check || self.is_healthy(&order.component);
            self.host.reached(match (order.action, passed) {
                (DeviceAction::Check, true) => Situation::CheckPassed,
                (DeviceAction::Check, false) => Situation::CheckFailed,
                _ => Situation::Repaired,
            });
            let evidence = "simulated".to_owned();
            let done = WorkDone {
                order,
                passed,
                evidence,
            };
            changed |= self.step(Input::HealthWorkDone(done)).await;
        }
        changed
    }

    fn is_healthy(&self, component: &Component) -> bool {
        let gpus = lock(&self.host.gpus);
        let is_well = |(gpu, health): (&GpuUuid, &GpuHealth)| {
            let is_meant = !matches!(component, Component::Gpu(of) if of != gpu);
            !is_meant || *health == GpuHealth::Healthy
        };
        gpus.iter().all(is_well)
    }

    async fn look_at_gpus(&mut self) -> bool {
        let mut seen = lock(&self.host.gpus).clone();
        let frees_hung = self.host.settings.mutant == Some(Mutant::FreesHungGpus);
        let held: BTreeSet<GpuUuid> = self.host.supervisors.held_gpus().into_iter().collect();
        for gpu in held.iter().filter(|_| !frees_hung) {
            let health = seen.entry(*gpu).or_insert(GpuHealth::Healthy);
            if *health == GpuHealth::Healthy {
                *health = stuck();
            }
        }
        let mut changed = false;
        for (gpu, shown) in seen {
            if self.known_gpus.get(&gpu) != Some(&shown) {
                self.known_gpus.insert(gpu, shown.clone());
                changed |= self.step(Input::Found(findings(gpu, &shown))).await;
            }
            // What the rules judge makes no GPU unfit by itself.
            let health = match xid_of(&shown) {
                Some(_) if held.contains(&gpu) && !frees_hung => stuck(),
                Some(_) => GpuHealth::Healthy,
                None => shown,
            };
            changed |= self.step(Input::GpuHealth { gpu, health }).await;
        }
        changed
    }

    /// One step of the agent; true if the leader should hear of it at once.
    async fn step(&mut self, input: Input) -> bool {
        let now = self.host.clock.monotonic();
        let actions = lock(&self.host.agent).step(input, now);
        let tell = actions.contains(&Action::SendStatus);
        self.act(actions).await;
        tell
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
                    supervisors.start(&assignment, deadline, behaviour(&assignment));
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

/// What a GPU's fault is to the rules; that it is over is no news to them: an XID's block ends with a check.
fn findings(gpu: GpuUuid, health: &GpuHealth) -> Vec<Finding> {
    let Some((code, detail)) = xid_of(health) else {
        return Vec::new();
    };
    vec![Finding {
        sequence: 0,
        rule: "xid".to_owned(),
        component: Component::Gpu(gpu),
        severity: Severity::Fatal,
        metric: "xid".to_owned(),
        measured: i64::from(code),
        code: Some(code),
        cluster: None,
        evidence: detail.to_owned(),
        at: TimeMs(0),
    }]
}

/// The XID that a GPU shows, and what else is said of it.
fn xid_of(health: &GpuHealth) -> Option<(u32, &str)> {
    let GpuHealth::Faulted { signal, detail } = health else {
        return None;
    };
    Some((signal.strip_prefix("xid-")?.parse().ok()?, detail.as_str()))
}

fn stuck() -> GpuHealth {
    GpuHealth::Faulted {
        signal: "task-stuck".to_owned(),
        detail: "a task that cannot be killed".to_owned(),
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

/// A simulated task's behaviour stands in its environment.
fn behaviour(assignment: &TaskAssignment) -> Behaviour {
    let number = |name: &str, default: u64| {
        let text = assignment.environment.get(name);
        text.and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    Behaviour {
        run_ms: number("RUN_MS", 1_000),
        exit_code: i32::try_from(number("EXIT_CODE", 0)).unwrap_or(1),
        heeds_stop: number("HEEDS_STOP", 1) == 1,
        hang_ms: number("HANG_MS", 0),
    }
}
