//! Raft messages over the simulated network.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use muster_proto::raft::v1::{PeerRequest, PeerResponse};
use muster_raft_store::network::stream_by_calls;
use muster_raft_store::sim::{Transport, TransportError};
use muster_raft_store::{Handle, Peer, StateMachine};

use crate::sim::links::network::SimNetwork;
use crate::sim::runtime::NodeId;

/// Addresses of the running replicas.
pub struct Registry<M: StateMachine> {
    replicas: Arc<Mutex<Listeners<M>>>,
}

type Listeners<M> = BTreeMap<String, (NodeId, Handle<M>)>;

impl<M: StateMachine> Default for Registry<M> {
    fn default() -> Self {
        Self {
            replicas: Arc::default(),
        }
    }
}

impl<M: StateMachine> Clone for Registry<M> {
    fn clone(&self) -> Self {
        Self {
            replicas: Arc::clone(&self.replicas),
        }
    }
}

impl<M: StateMachine> fmt::Debug for Registry<M> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.lock().keys()).finish()
    }
}

impl<M: StateMachine> Registry<M> {
    /// Registers a started replica.
    pub fn listen(&self, address: String, node: NodeId, handle: Handle<M>) {
        self.lock().insert(address, (node, handle));
    }

    /// Removes a stopped replica; returns its handle.
    pub fn close(&self, address: &str) -> Option<Handle<M>> {
        self.lock().remove(address).map(|(_, handle)| handle)
    }

    /// Removes all replicas.
    pub fn close_all(&self) {
        let closed = std::mem::take(&mut *self.lock());
        drop(closed);
    }

    /// Finds the replica at an address.
    #[must_use]
    pub fn find(&self, address: &str) -> Option<(NodeId, Handle<M>)> {
        self.lock().get(address).cloned()
    }

    /// Every running replica, by address.
    #[must_use]
    pub fn up(&self) -> Vec<(NodeId, Handle<M>)> {
        self.lock().values().cloned().collect()
    }

    // A panic while the lock is held ends the world anyway, and the data has no invariants.
    fn lock(&self) -> MutexGuard<'_, Listeners<M>> {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connections of one replica to the others.
#[derive(Debug)]
pub struct SimTransport<M: StateMachine> {
    /// The sending replica.
    pub from: NodeId,
    /// The network.
    pub network: SimNetwork,
    /// The running replicas.
    pub registry: Registry<M>,
}

impl<M: StateMachine> Clone for SimTransport<M> {
    fn clone(&self) -> Self {
        Self {
            from: self.from,
            network: self.network.clone(),
            registry: self.registry.clone(),
        }
    }
}

impl<M: StateMachine> Transport for SimTransport<M> {
    fn call(
        &self,
        to: Peer,
        request: PeerRequest,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<PeerResponse, TransportError>> {
        let transport = self.clone();
        Box::pin(async move {
            let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
            match tokio::time::timeout(timeout, transport.exchange(to, request)).await {
                Ok(answer) => answer,
                Err(_elapsed) => Err(TransportError::TimedOut { timeout_ms }),
            }
        })
    }

    fn stream(
        &self,
        to: Peer,
        requests: BoxStream<'static, PeerRequest>,
        timeout: Duration,
    ) -> BoxStream<'static, Result<PeerResponse, TransportError>> {
        let transport = self.clone();
        let call = move |request| transport.call(to.clone(), request, timeout);
        stream_by_calls(call, requests)
    }
}

impl<M: StateMachine> SimTransport<M> {
    async fn exchange(
        self,
        to: Peer,
        request: PeerRequest,
    ) -> Result<PeerResponse, TransportError> {
        let Some((node, handle)) = self.registry.find(&to.address) else {
            self.network.travel(self.from, self.from).await;
            return Err(TransportError::Unreachable(format!(
                "{} is down",
                to.address
            )));
        };
        let serve = || {
            let (handle, request) = (handle.clone(), request.clone());
            async move { handle.serve(request).await }
        };
        let Some(answer) = self.network.request(self.from, node, serve).await else {
            // A lost message causes silence until the time-out.
            return std::future::pending().await;
        };
        Ok(answer)
    }
}
