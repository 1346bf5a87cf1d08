//! Streams from workers to replicas over the simulated network: ordered, and permanently broken once a
//! message is lost, like a TCP connection that is not repaired in time.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use muster_model::command::HostRegistration;
use muster_model::heartbeat::Heartbeat;
use muster_model::ids::LeadershipEpoch;
use muster_scheduler::leader::{LeaderInput, SessionId, TO_WORKER_MAX, ToWorker};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::sim::links::network::SimNetwork;
use crate::sim::runtime::{NodeId, spawn_on};

/// Maximum messages of a worker in flight.
const TO_LEADER_MAX: usize = 256;

/// Inputs of each replica's leader loop.
#[derive(Clone, Default)]
pub struct Gateway {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    inputs: BTreeMap<NodeId, mpsc::Sender<LeaderInput>>,
    sessions: u64,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_list()
            .entries(self.lock().inputs.keys())
            .finish()
    }
}

/// A worker's end of a stream.
#[derive(Debug)]
pub struct Stream {
    /// Heartbeats to the leader; full or closed means that the stream is broken.
    pub up: mpsc::Sender<Heartbeat>,
    /// Messages from the leader; ends with the stream.
    pub down: mpsc::Receiver<ToWorker>,
}

impl Gateway {
    /// Registers the leader loop of a replica.
    pub fn listen(&self, replica: NodeId, inputs: mpsc::Sender<LeaderInput>) {
        self.lock().inputs.insert(replica, inputs);
    }

    /// Removes a stopped replica.
    pub fn close(&self, replica: NodeId) {
        self.lock().inputs.remove(&replica);
    }

    /// Sends an input to a replica's leader loop; `None` if the replica is down.
    pub async fn send(&self, replica: NodeId, input: LeaderInput) -> Option<()> {
        let inputs = self.lock().inputs.get(&replica)?.clone();
        inputs.send(input).await.ok()
    }

    /// Opens a stream from a worker to a replica and registers the worker; `None` if the replica is
    /// unreachable.
    pub async fn dial(
        &self,
        network: &SimNetwork,
        worker: NodeId,
        replica: NodeId,
        registration: Arc<HostRegistration>,
        leader_seen: LeadershipEpoch,
        can_hold: bool,
    ) -> Option<Stream> {
        if !network.travel(worker, replica).await {
            return None;
        }
        let (session, inputs) = {
            let mut inner = self.lock();
            inner.sessions += 1;
            (
                SessionId(inner.sessions),
                inner.inputs.get(&replica)?.clone(),
            )
        };
        let (to_worker, from_leader) = mpsc::channel(TO_WORKER_MAX);
        let hello = LeaderInput::Hello {
            session,
            registration,
            leader_seen,
            can_hold,
            to_worker,
        };
        inputs.send(hello).await.ok()?;

        let (up, heartbeats) = mpsc::channel(TO_LEADER_MAX);
        let (deliver, down) = mpsc::channel(TO_WORKER_MAX);
        let link = Link {
            network: network.clone(),
            worker,
            replica,
            session,
        };
        spawn_on(
            worker,
            session.0,
            link.clone().carry_up(heartbeats, inputs.clone()),
        );
        spawn_on(
            replica,
            session.0,
            link.carry_down(from_leader, deliver, inputs),
        );
        Some(Stream { up, down })
    }

    // A panic while the lock is held ends the world anyway, and the data has no invariants.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone)]
struct Link {
    network: SimNetwork,
    worker: NodeId,
    replica: NodeId,
    session: SessionId,
}

impl Link {
    async fn carry_up(
        self,
        mut heartbeats: mpsc::Receiver<Heartbeat>,
        inputs: mpsc::Sender<LeaderInput>,
    ) {
        while let Some(heartbeat) = heartbeats.recv().await {
            let input = LeaderInput::Heartbeat {
                session: self.session,
                heartbeat,
                arrived: Instant::now(),
            };
            if !self.network.travel(self.worker, self.replica).await
                || inputs.send(input).await.is_err()
            {
                return;
            }
        }
    }

    async fn carry_down(
        self,
        mut messages: mpsc::Receiver<ToWorker>,
        deliver: mpsc::Sender<ToWorker>,
        inputs: mpsc::Sender<LeaderInput>,
    ) {
        while let Some(message) = messages.recv().await {
            if !self.network.travel(self.replica, self.worker).await {
                // Silence: the worker notices the missing acknowledgements.
                std::future::pending::<()>().await;
            }
            if deliver.send(message).await.is_err() {
                break;
            }
        }
        // The leader loop may have ended with its replica.
        let _unheard = inputs
            .send(LeaderInput::Closed {
                session: self.session,
            })
            .await;
    }
}
