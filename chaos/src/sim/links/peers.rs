//! Access of the leader loop to the replicated heartbeat times of other replicas.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use muster_engine::state::State;
use muster_log::COMMAND_FORMAT;
use muster_model::ids::ReplicaId;
use muster_raft_store::Handle;
use muster_scheduler::leader::{
    Fence, HeartbeatPush, HeartbeatReport, PeerError, PeerLinks, SharedHeartbeatStore,
};

use crate::sim::clock::SimClock;
use crate::sim::links::network::SimNetwork;
use crate::sim::runtime::NodeId;

/// A replica's store of replicated heartbeat times, as reached by others.
#[derive(Clone)]
pub struct HeartbeatReplica {
    /// The stored heartbeat times.
    pub heartbeats: Arc<SharedHeartbeatStore>,
    /// Its clock.
    pub clock: SimClock,
    /// Its replica, which knows the newest term.
    pub handle: Handle<State>,
}

/// Stores of all running replicas.
#[derive(Clone, Default)]
pub struct HeartbeatStores {
    services: Arc<Mutex<BTreeMap<NodeId, HeartbeatReplica>>>,
}

impl fmt::Debug for HeartbeatStores {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ShadowServices")
            .finish_non_exhaustive()
    }
}

impl HeartbeatStores {
    /// Registers the store of a started replica.
    pub fn listen(&self, node: NodeId, service: HeartbeatReplica) {
        self.services
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(node, service);
    }

    /// Removes the store of a stopped replica with its contents.
    pub fn close(&self, node: NodeId) {
        self.services
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&node);
    }

    fn find(&self, node: NodeId) -> Option<HeartbeatReplica> {
        self.services
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&node)
            .cloned()
    }
}

/// Connections of one replica.
#[derive(Clone, Debug)]
pub struct SimPeers {
    /// The calling replica.
    pub from: NodeId,
    /// The network.
    pub network: SimNetwork,
    /// Stores of the other replicas.
    pub services: HeartbeatStores,
}

impl SimPeers {
    async fn ask<T: Send + 'static>(
        self,
        replica: ReplicaId,
        serve: impl FnOnce(HeartbeatReplica) -> Result<T, PeerError> + Send + 'static,
    ) -> Result<T, PeerError> {
        let unreachable = || PeerError::Unreachable {
            replica,
            detail: "the simulated link is cut".to_owned(),
        };
        let node = NodeId(u32::try_from(replica.get()).map_err(|_| unreachable())?);
        let services = self.services.clone();
        let served = async move { services.find(node).map(serve) };
        let answer = self.network.exchange(self.from, node, served).await;
        answer.flatten().unwrap_or_else(|| Err(unreachable()))
    }
}

impl PeerLinks for SimPeers {
    fn push_heartbeats(
        &self,
        replica: ReplicaId,
        push: Arc<HeartbeatPush>,
    ) -> impl Future<Output = Result<u8, PeerError>> + Send + 'static {
        self.clone().ask(replica, move |service| {
            let term = service.handle.leadership().borrow().term;
            let mut heartbeats = service.heartbeats.lock();
            heartbeats.push(service.clock.monotonic(), term, &push)?;
            Ok(COMMAND_FORMAT)
        })
    }

    fn fetch_heartbeats(
        &self,
        replica: ReplicaId,
        asking: Fence,
    ) -> impl Future<Output = Result<HeartbeatReport, PeerError>> + Send + 'static {
        self.clone().ask(replica, move |service| {
            let term = service.handle.leadership().borrow().term;
            let mut heartbeats = service.heartbeats.lock();
            Ok(heartbeats.report(service.clock.monotonic(), term, asking)?)
        })
    }
}
