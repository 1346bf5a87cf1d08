//! One term of leadership, from its epoch to its loss.

mod barriers;
mod defaults;
mod heartbeat_replication;
mod membership;
mod registration;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use muster_control::reactor::{Input, Pace, Reaction, Reactor};
use muster_engine::apply::Applied;
use muster_engine::desired;
use muster_engine::state::State;
use muster_model::command::{Command, HostCommand};
use muster_model::heartbeat::Heartbeat;
use muster_model::ids::{HostId, Revision};
use muster_model::rejection::Rejection;
use muster_model::time::{MonotonicMs, TimeMs};
use muster_planner::is_idle;
use muster_raft_store::{Leadership, MembershipError, ProposeError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::leader::batch::{CommandBatch, Waiters, propose_all};
use crate::leader::changes::Changes;
use crate::leader::feature_level::readable;
use crate::leader::heartbeat_store::Fence;
use crate::leader::planning::Planning;
use crate::leader::replication_rounds::{PendingHeartbeat, PushAnswer, ReplicationRounds};
use crate::leader::session::{CloseReason, LeaderInput, SessionId, ToWorker};
use crate::leader::sessions::Sessions;
use crate::leader::start::StartedTerm;
use crate::leader::telemetry::{Phase, PhaseTimer};
pub use crate::leader::term::membership::CHANGE_MS_MAX;
use crate::leader::term::membership::MembershipChange;
use crate::leader::{Clock, LeaderLoop, PeerLinks, telemetry};
use crate::spans;

/// Inputs processed in one step.
const INPUTS_PER_STEP_MAX: usize = 4_096;
/// Desired states computed between two yields to other tasks of the runtime.
const DESIRED_PER_YIELD: usize = 256;

/// Proposals in flight and the recipients of their outcomes.
struct InFlight {
    waiters: Waiters,
    answer: BoxFuture<'static, Result<Vec<Applied>, ProposeError>>,
    since: Instant,
}

/// One term of leadership.
pub(super) struct Term<'a, P, C> {
    parts: &'a mut LeaderLoop<P, C>,
    leadership: watch::Receiver<Leadership>,
    applied: watch::Receiver<u64>,
    fence: Fence,
    reactor: Reactor,
    sessions: Sessions,
    rounds: ReplicationRounds,
    pace: Pace,
    planning: Planning,
    /// Revision up to which events have been processed.
    processed: Revision,
    /// Hosts to be sent their desired state even if it is unchanged.
    unsent: BTreeSet<HostId>,
    inputs: Vec<LeaderInput>,
    in_flight: Option<InFlight>,
    /// The change of the replicas in progress.
    membership_change: MembershipChange,
    /// Time of the reactor's next timer.
    tick_at: Option<MonotonicMs>,
}

/// Reason why the loop woke.
enum WakeReason {
    Leadership,
    Stop,
    Pushed(PushAnswer),
    Proposed(Result<Vec<Applied>, ProposeError>),
    MembershipCommitted(Result<(), MembershipError>),
    Inputs(usize),
    Changed,
    Time,
}

impl<'a, P: PeerLinks, C: Clock> Term<'a, P, C> {
    pub(super) fn new(
        parts: &'a mut LeaderLoop<P, C>,
        beginning: StartedTerm,
        leadership: watch::Receiver<Leadership>,
    ) -> Self {
        let now = parts.clock.monotonic();
        let state = parts.handle.fork();
        let epoch = beginning.fence.epoch;
        let contacts = state
            .hosts
            .keys()
            .map(|host| (*host, beginning.inheritance.contact(*host)))
            .collect();
        let settings = parts.settings;
        let reactor = Reactor::new(epoch, settings.timings, now, contacts);
        Self {
            applied: parts.handle.applied(),
            sessions: Sessions::new(Arc::clone(&parts.directory)),
            parts,
            leadership,
            fence: beginning.fence,
            reactor,
            rounds: ReplicationRounds::new(beginning.fence),
            pace: Pace::new(settings.timings, settings.heartbeats_per_second_max),
            planning: Planning::new(),
            processed: state.revision,
            unsent: BTreeSet::new(),
            inputs: Vec::new(),
            in_flight: None,
            membership_change: MembershipChange::default(),
            tick_at: Some(now),
        }
    }

    /// Leads until leadership is lost or `stop` is requested; then every stream is ended.
    pub(super) async fn run(mut self, stop: &CancellationToken) {
        self.adopt_format();
        telemetry::epoch(self.fence.epoch);
        while self.step(stop).await.is_some() {}
        let newest = self.leadership.borrow().leader.clone();
        let leader = newest.filter(|peer| peer.id != self.parts.settings.replica.get());
        tracing::info!(epoch = %self.fence.epoch, "leadership ended");
        self.sessions.end_all(&CloseReason::NotLeader { leader });
        telemetry::workers_connected(0);
    }

    /// One turn; `None` if the leadership is over.
    async fn step(&mut self, stop: &CancellationToken) -> Option<()> {
        if self.in_flight.is_none() {
            self.advance().await;
        }
        self.continue_change();
        self.replicate_heartbeats();
        match self.wake(stop).await {
            WakeReason::Stop => return None,
            WakeReason::Leadership => self.check_leadership()?,
            WakeReason::Pushed(answer) => {
                self.rounds.count(&answer);
                if self.rounds.asks_formats() {
                    self.adopt_format();
                }
                self.acknowledge();
            }
            WakeReason::Proposed(result) => self.conclude(result)?,
            WakeReason::MembershipCommitted(result) => self.change_concluded(result),
            WakeReason::Inputs(0) => return None,
            WakeReason::Inputs(_) | WakeReason::Changed | WakeReason::Time => {}
        }
        Some(())
    }

    async fn wake(&mut self, stop: &CancellationToken) -> WakeReason {
        let wake_at = self.wake_at();
        let is_free = self.in_flight.is_none();
        let answer = async {
            match &mut self.in_flight {
                Some(in_flight) => (&mut in_flight.answer).await,
                None => std::future::pending().await,
            }
        };
        let time = async {
            match wake_at {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => WakeReason::Stop,
            _ = self.leadership.changed() => WakeReason::Leadership,
            answer = self.rounds.answered() => WakeReason::Pushed(answer),
            result = answer => WakeReason::Proposed(result),
            result = self.membership_change.committed() => WakeReason::MembershipCommitted(result),
            count = self.parts.inputs.recv_many(&mut self.inputs, INPUTS_PER_STEP_MAX), if is_free => {
                WakeReason::Inputs(count)
            }
            _ = self.applied.changed(), if is_free => WakeReason::Changed,
            () = time => WakeReason::Time,
        }
    }

    /// Time of decisions: the same clock that stamps log entries.
    fn now(&self) -> TimeMs {
        TimeMs(self.parts.handle.now_ms())
    }

    fn wake_at(&self) -> Option<Instant> {
        let clock = &self.parts.clock;
        let round = self.rounds.due_at().map(|at| clock.instant(at));
        let without_proposals = [round, self.membership_change.wake_at()]
            .into_iter()
            .flatten()
            .min();
        if self.in_flight.is_some() {
            return without_proposals;
        }
        let tick = self.tick_at.map(|at| clock.instant(at));
        let plan = self.planning.wake_at(self.now());
        [without_proposals, tick, plan].into_iter().flatten().min()
    }

    /// Leadership may have been lost, or lost and regained: both end this term.
    fn check_leadership(&mut self) -> Option<()> {
        let now = self.leadership.borrow_and_update();
        let is_ours = now.is_self && !now.stopped && now.term == self.fence.term;
        is_ours.then_some(())
    }

    /// Processes changes, sends desired states to workers, and proposes the next batch.
    async fn advance(&mut self) {
        let mut turn = PhaseTimer::begin();
        let state = {
            self.applied.mark_unchanged();
            self.parts.handle.fork()
        };
        turn.ended(Phase::Fork);
        if state.revision > self.processed {
            let changes = Changes::since(&state, self.processed);
            self.processed = state.revision;
            self.note(&state, changes);
        }
        turn.ended(Phase::Changes);
        self.dispatch(&state).await;
        turn.ended(Phase::Dispatch);
        let mut batch = CommandBatch::default();
        self.set_defaults(&state, &mut batch);
        self.take_inputs(&state, &mut batch);
        turn.ended(Phase::Inputs);
        batch.extend(readable(self.reactor.releases(&state), self.rounds.level()));
        self.record_replicas(&state, &mut batch);
        self.tick(&state, &mut batch);
        turn.ended(Phase::Reactions);
        self.plan(&state, &mut batch);
        if !batch.is_empty() {
            self.propose(batch);
        }
    }

    fn note(&mut self, state: &State, changes: Changes) {
        telemetry::changed(&changes);
        if changes.plan {
            self.planning.request();
        }
        let candidates: Vec<HostId> = if changes.all_hosts {
            self.sessions.hosts().collect()
        } else {
            changes.hosts.into_iter().collect()
        };
        for host in candidates {
            let desired_revision = state.host(host).map(|known| known.desired_revision);
            if let Some((_, session)) = self.sessions.of_host(host)
                && desired_revision.is_some_and(|revision| revision > session.sent)
            {
                self.unsent.insert(host);
            }
        }
    }

    /// Sends the hosts in `unsent` their desired state. One whose queue is full is repaired after its next heartbeat.
    async fn dispatch(&mut self, state: &State) {
        let mut computed = 0;
        for host in std::mem::take(&mut self.unsent) {
            let Some((id, session)) = self.sessions.of_host(host) else {
                continue;
            };
            let before = std::mem::replace(&mut session.sent, state.revision);
            let desired = desired::of_host(state, host);
            spans::ordered(state, host, before, &desired);
            self.sessions.send(id, ToWorker::Desired(Box::new(desired)));
            computed += 1;
            if computed % DESIRED_PER_YIELD == 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    fn take_inputs(&mut self, state: &State, batch: &mut CommandBatch) {
        let mut inputs = std::mem::take(&mut self.inputs);
        for input in inputs.drain(..) {
            match input {
                LeaderInput::Hello {
                    session,
                    registration,
                    leader_seen,
                    can_hold,
                    to_worker,
                } => {
                    self.sessions
                        .open(session, registration, can_hold, to_worker);
                    self.register(state, session, leader_seen, batch);
                }
                LeaderInput::Heartbeat {
                    session,
                    heartbeat,
                    arrived,
                } => {
                    telemetry::heartbeat();
                    self.heartbeat(state, session, arrived, heartbeat, batch);
                }
                LeaderInput::Closed { session } => self.sessions.forget(session),
                LeaderInput::ChangeReplicas(requested) => self.begin_change(state, requested),
            }
        }
        self.inputs = inputs;
        telemetry::workers_connected(self.sessions.connected());
    }

    fn heartbeat(
        &mut self,
        state: &State,
        id: SessionId,
        arrived: Instant,
        heartbeat: Heartbeat,
        batch: &mut CommandBatch,
    ) {
        let Some(host) = self.sessions.host_of(id) else {
            // Replaced by a newer stream, or not registered: its lease is not extended.
            tracing::debug!(session = id.0, "heartbeat on a stream without a host");
            return;
        };
        if heartbeat.leader > self.fence.epoch {
            self.sessions
                .end(id, CloseReason::NotLeader { leader: None });
            return;
        }
        let now = self.parts.clock.monotonic();
        let sequence = heartbeat.sequence;
        if let Some(status) = &heartbeat.status {
            self.parts.directory.record_status(host, status);
        }
        let may_acknowledge = works_on_this_group(state, &heartbeat);
        let reaction = self
            .reactor
            .step(state, Input::Heartbeat { host, heartbeat }, now);
        if !may_acknowledge {
            self.react(reaction, batch);
            return;
        }
        self.rounds.record(
            host,
            PendingHeartbeat {
                session: id,
                sequence,
                processed_at: now,
                arrived,
            },
        );
        self.react(reaction, batch);
    }

    fn tick(&mut self, state: &State, batch: &mut CommandBatch) {
        let now = self.parts.clock.monotonic();
        if self.tick_at.is_some_and(|at| at > now) {
            return;
        }
        let time = self.now();
        let reaction = self.reactor.step(state, Input::Tick { time }, now);
        for command in &reaction.commands {
            let Command::Host(HostCommand::SetHostHealth {
                host,
                health,
                one_way,
                ..
            }) = command
            else {
                continue;
            };
            if let Some(contact) = self.reactor.contact(*host) {
                let silence = Duration::from_millis(now.since(contact.last_contact_at));
                telemetry::silent(*health, *one_way, silence);
            }
        }
        self.react(reaction, batch);
    }

    fn react(&mut self, reaction: Reaction, batch: &mut CommandBatch) {
        batch.extend(readable(reaction.commands, self.rounds.level()));
        self.unsent.extend(reaction.outdated);
        self.planning.request_at(reaction.plan_at);
        self.tick_at = reaction.wake_at;
    }

    fn plan(&mut self, state: &State, batch: &mut CommandBatch) {
        let now = self.now();
        if !self.planning.take(now) || is_idle(state) {
            return;
        }
        let began = Instant::now();
        let scope = self.planning.scope(now);
        let planned = self.planning.plan(state, now, self.parts.settings.budget);
        let took = began.elapsed();
        telemetry::planned(took, scope, &planned);
        spans::planned(&planned.steps, took);
        self.planning.ran(took, planned.steps.len());
        if planned.more {
            self.planning.request();
        }
        batch.add_plan(self.with_barriers(state, planned));
    }

    fn propose(&mut self, batch: CommandBatch) {
        telemetry::proposed(batch.len());
        let mut turn = PhaseTimer::begin();
        let (proposals, waiters) = batch.into_proposals();
        let answer = propose_all(self.parts.handle.clone(), proposals).boxed();
        turn.ended(Phase::Propose);
        self.in_flight = Some(InFlight {
            waiters,
            answer,
            since: Instant::now(),
        });
    }

    /// Delivers the outcomes; `None` if they show that the leadership is over.
    fn conclude(&mut self, result: Result<Vec<Applied>, ProposeError>) -> Option<()> {
        let in_flight = self.in_flight.take()?;
        Phase::Commit.took(in_flight.since.elapsed());
        match result {
            Ok(outcomes) => {
                let now = self.now();
                for (severity, at) in &in_flight.waiters.found {
                    telemetry::detected(*severity, now.since(*at));
                }
                self.deliver(&in_flight.waiters, &outcomes)
            }
            Err(
                error @ (ProposeError::NotLeader { .. }
                | ProposeError::Unknown
                | ProposeError::Stopped),
            ) => {
                tracing::info!(%error, "batch without an outcome");
                None
            }
            Err(error) => {
                tracing::warn!(%error, "batch refused");
                for (_, session) in in_flight.waiters.registrations {
                    self.sessions.end(session, CloseReason::Busy);
                }
                self.planning.request();
                Some(())
            }
        }
    }

    fn deliver(&mut self, waiters: &Waiters, outcomes: &[Applied]) -> Option<()> {
        let mut is_stale = false;
        for outcome in outcomes {
            if let Err(rejection) = &outcome.result {
                telemetry::rejected();
                tracing::debug!(%rejection, revision = %outcome.revision, "a command had no effect");
                is_stale |= matches!(rejection, Rejection::StaleLeader { .. });
            }
        }
        for (position, session) in &waiters.registrations {
            if let Some(outcome) = outcomes.get(*position) {
                self.registered(*session, outcome);
            }
        }
        let steps = outcomes.get(waiters.steps.clone()).unwrap_or_default();
        if steps.iter().any(|outcome| outcome.result.is_err()) {
            self.planning.request();
        }
        (!is_stale).then_some(())
    }
}

/// Whether a worker's leases may be extended. In a group rebuilt from a backup or a source replica, a worker
/// may run tasks unknown to the group: its heartbeats are not acknowledged before it has applied a desired
/// state of this group, which stops those tasks.
fn works_on_this_group(state: &State, heartbeat: &Heartbeat) -> bool {
    let floor = state.recovery.map(|recovery| recovery.floor);
    floor.is_none_or(|floor| heartbeat.desired_revision >= floor)
}
