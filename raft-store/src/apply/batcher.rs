//! Batcher: packs queued proposals into log entries, with a bounded number of entries in flight.
//!
//! A proposal is never split and never retried. When leadership is lost, every proposal in flight is
//! answered as unknown at once: waiting would only delay the proposer's own retry.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use openraft::Raft;
use openraft::errors::ClientWriteError;
use openraft::impls::OneshotResponder;
use openraft::raft::ClientWriteResult;
use tokio::sync::{mpsc, oneshot, watch};

use crate::apply::applier::Applier;
use crate::apply::batch::Batch;
use crate::apply::hash_ledger::HashLedger;
use crate::apply::shared::SharedState;
use crate::apply::state_machine::StateMachine;
use crate::error::ProposeError;
use crate::member::leadership::Leadership;
use crate::member::peer::Peer;
use crate::replica::config::BatchLimits;
use crate::replica::log_clock::LogClock;
use crate::replica::telemetry;
use crate::sim::Runtime;
use crate::types::{Node, Types};

/// Commands waiting for a log entry.
pub(crate) struct Proposal<M: StateMachine> {
    pub(crate) commands: Vec<M::Command>,
    pub(crate) encoded: Vec<Bytes>,
    pub(crate) bytes: usize,
    pub(crate) reply: Reply<M>,
}

pub(crate) type Reply<M> = oneshot::Sender<Result<Vec<<M as StateMachine>::Outcome>, ProposeError>>;

/// Proposer waiting for its share of an entry's outcomes.
struct Waiting<M: StateMachine> {
    commands: usize,
    reply: Reply<M>,
}

/// Ticket and result of an entry.
type Finished<M, R> = (u64, Option<ClientWriteResult<Types<M, R>>>);

/// The batching task of one replica.
pub(crate) struct Batcher<M: StateMachine, R: Runtime> {
    raft: Raft<Types<M, R>, Applier<M, R>>,
    limits: BatchLimits,
    clock: LogClock,
    shared: Arc<SharedState<M>>,
    ledger: Arc<HashLedger>,
    leadership: watch::Receiver<Leadership>,
    incoming: mpsc::Receiver<Proposal<M>>,
    queue: VecDeque<Proposal<M>>,
    /// Entries in flight by ticket, in order.
    in_flight: VecDeque<(u64, Vec<Waiting<M>>)>,
    finishing: FuturesUnordered<BoxFuture<'static, Finished<M, R>>>,
    next_ticket: u64,
}

/// Dependencies of a batcher.
pub(crate) struct BatcherParts<M: StateMachine, R: Runtime> {
    pub(crate) raft: Raft<Types<M, R>, Applier<M, R>>,
    pub(crate) limits: BatchLimits,
    pub(crate) clock: LogClock,
    pub(crate) shared: Arc<SharedState<M>>,
    pub(crate) ledger: Arc<HashLedger>,
    pub(crate) leadership: watch::Receiver<Leadership>,
    pub(crate) incoming: mpsc::Receiver<Proposal<M>>,
}

/// Event that woke the loop.
enum WakeReason<M: StateMachine, R: Runtime> {
    Proposals(usize),
    Finished(Finished<M, R>),
    Leadership,
    Closed,
}

impl<M: StateMachine, R: Runtime> Batcher<M, R> {
    pub(crate) fn new(parts: BatcherParts<M, R>) -> Self {
        Self {
            raft: parts.raft,
            limits: parts.limits,
            clock: parts.clock,
            shared: parts.shared,
            ledger: parts.ledger,
            leadership: parts.leadership,
            incoming: parts.incoming,
            queue: VecDeque::new(),
            in_flight: VecDeque::new(),
            finishing: FuturesUnordered::new(),
            next_ticket: 0,
        }
    }

    /// Runs until every handle is dropped or the replica has stopped.
    pub(crate) async fn run(mut self) {
        loop {
            match self.wake().await {
                WakeReason::Proposals(0) | WakeReason::Closed => break,
                WakeReason::Proposals(_) => {}
                WakeReason::Finished((ticket, result)) => self.finish(ticket, result),
                WakeReason::Leadership => {
                    if self.check_leadership() {
                        break;
                    }
                }
            }
            while self.in_flight.len() < self.limits.in_flight_entries_max && !self.queue.is_empty()
            {
                self.submit().await;
            }
        }
        self.fail_in_flight();
        self.fail_queue(|| ProposeError::Stopped);
    }

    async fn wake(&mut self) -> WakeReason<M, R> {
        let room = self.queue.is_empty();
        let mut received = Vec::new();
        let limit = self.limits.entry_commands_max;
        let woken = tokio::select! {
            biased;
            changed = self.leadership.changed() => match changed {
                Ok(()) => WakeReason::Leadership,
                Err(_) => WakeReason::Closed,
            },
            Some(finished) = self.finishing.next() => WakeReason::Finished(finished),
            count = self.incoming.recv_many(&mut received, limit), if room => {
                WakeReason::Proposals(count)
            }
        };
        self.queue.extend(received);
        woken
    }

    /// Fails proposals that can no longer be decided here; returns true once the replica has stopped.
    fn check_leadership(&mut self) -> bool {
        let leadership = self.leadership.borrow_and_update().clone();
        if !leadership.is_self {
            self.fail_in_flight();
            self.fail_queue(|| not_leader(leadership.leader.clone()));
        }
        leadership.stopped
    }

    fn fail_in_flight(&mut self) {
        self.finishing.clear();
        for (_, waiting) in self.in_flight.drain(..) {
            for waiter in waiting {
                reply(waiter.reply, Err(ProposeError::Unknown));
            }
        }
    }

    fn fail_queue(&mut self, error: impl Fn() -> ProposeError) {
        while let Ok(proposal) = self.incoming.try_recv() {
            self.queue.push_back(proposal);
        }
        for proposal in self.queue.drain(..) {
            reply(proposal.reply, Err(error()));
        }
    }

    /// Packs as many queued proposals as fit and proposes them as one entry.
    async fn submit(&mut self) {
        let (batch, waiting) = self.pack();
        let (responder, outcome) = OneshotResponder::new_pair();
        if self
            .raft
            .client_write_ff(batch, Some(responder))
            .await
            .is_err()
        {
            for waiter in waiting {
                reply(waiter.reply, Err(ProposeError::Stopped));
            }
            return;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.in_flight.push_back((ticket, waiting));
        self.finishing
            .push(Box::pin(async move { (ticket, outcome.await.ok()) }));
    }

    fn pack(&mut self) -> (Batch<M>, Vec<Waiting<M>>) {
        let (mut commands, mut encoded, mut waiting) = (Vec::new(), Vec::new(), Vec::new());
        let mut bytes = 0;
        while let Some(proposal) = self.queue.front() {
            let too_many =
                commands.len() + proposal.commands.len() > self.limits.entry_commands_max;
            let too_large = bytes + proposal.bytes > self.limits.entry_bytes_max;
            if !commands.is_empty() && (too_many || too_large) {
                break;
            }
            let Some(proposal) = self.queue.pop_front() else {
                break;
            };
            bytes += proposal.bytes;
            waiting.push(Waiting {
                commands: proposal.commands.len(),
                reply: proposal.reply,
            });
            commands.extend(proposal.commands);
            encoded.extend(proposal.encoded);
        }
        telemetry::proposed(commands.len(), bytes);
        let check = self.ledger.take_unreported();
        let time_ms = self.clock.read(self.shared.read().state.time_ms());
        let batch = Batch::pack(time_ms, commands, encoded, check);
        (batch, waiting)
    }

    fn finish(&mut self, ticket: u64, result: Option<ClientWriteResult<Types<M, R>>>) {
        let Some(position) = self
            .in_flight
            .iter()
            .position(|(other, _)| *other == ticket)
        else {
            return;
        };
        let Some((_, waiting)) = self.in_flight.remove(position) else {
            return;
        };
        match result {
            Some(Ok(response)) => deliver(waiting, response.data.0),
            Some(Err(ClientWriteError::ForwardToLeader(forward))) => {
                let leader = to_peer(forward.leader_id, forward.leader_node);
                fail(waiting, || not_leader(leader.clone()));
            }
            // The entry was discarded from the log, or the engine stopped: another replica may still hold
            // it.
            Some(Err(_)) | None => fail(waiting, || ProposeError::Unknown),
        }
    }
}

pub(crate) fn to_peer(id: Option<u64>, node: Option<Node>) -> Option<Peer> {
    id.zip(node).map(|(id, node)| Peer::new(id, node.address))
}

fn not_leader(leader: Option<Peer>) -> ProposeError {
    telemetry::proposal_refused("not_leader");
    ProposeError::NotLeader { leader }
}

fn deliver<M: StateMachine>(waiting: Vec<Waiting<M>>, outcomes: Vec<M::Outcome>) {
    let mut outcomes = outcomes.into_iter();
    for waiter in waiting {
        let own = outcomes.by_ref().take(waiter.commands).collect();
        reply(waiter.reply, Ok(own));
    }
}

fn fail<M: StateMachine>(waiting: Vec<Waiting<M>>, error: impl Fn() -> ProposeError) {
    for waiter in waiting {
        reply(waiter.reply, Err(error()));
    }
}

/// A proposer that has gone away no longer needs its answer.
fn reply<T>(to: oneshot::Sender<T>, answer: T) {
    drop(to.send(answer));
}
