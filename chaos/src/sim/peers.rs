//! The leader loop's way to the other replicas' shadow memories.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use muster_engine::state::State;
use muster_model::ids::ReplicaId;
use muster_proto::log::COMMAND_FORMAT;
use muster_raft_store::Handle;
use muster_scheduler::leader::{
    Fence, PeerError, PeerLinks, ShadowPush, ShadowReport, SharedShadows,
};

use crate::sim::clock::SimClock;
use crate::sim::network::SimNetwork;
use crate::sim::runtime::NodeId;

/// A replica's shadow memory as the others reach it.
#[derive(Clone)]
pub struct ShadowService {
    /// What it remembers.
    pub shadows: Arc<SharedShadows>,
    /// Its clock.
    pub clock: SimClock,
    /// Its replica, which knows the newest term.
    pub handle: Handle<State>,
}

/// The shadow memories of all replicas that are up.
#[derive(Clone, Default)]
pub struct ShadowServices {
    services: Arc<Mutex<BTreeMap<NodeId, ShadowService>>>,
}

impl fmt::Debug for ShadowServices {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ShadowServices")
            .finish_non_exhaustive()
    }
}

impl ShadowServices {
    /// A replica answers.
    pub fn listen(&self, node: NodeId, service: ShadowService) {
        self.services
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(node, service);
    }

    /// A replica answers no more, and has forgotten everything.
    pub fn close(&self, node: NodeId) {
        self.services
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&node);
    }

    fn find(&self, node: NodeId) -> Option<ShadowService> {
        self.services
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&node)
            .cloned()
    }
}

/// One replica's links.
#[derive(Clone, Debug)]
pub struct SimPeers {
    /// The replica that asks.
    pub from: NodeId,
    /// The links.
    pub network: SimNetwork,
    /// Who answers.
    pub services: ShadowServices,
}

impl SimPeers {
    async fn ask<T: Send + 'static>(
        self,
        replica: ReplicaId,
        serve: impl FnOnce(ShadowService) -> Result<T, PeerError> + Send + 'static,
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
    fn push_shadows(
        &self,
        replica: ReplicaId,
        push: Arc<ShadowPush>,
    ) -> impl Future<Output = Result<u8, PeerError>> + Send + 'static {
        self.clone().ask(replica, move |service| {
            let term = service.handle.leadership().borrow().term;
            let mut shadows = service.shadows.lock();
            shadows.push(service.clock.monotonic(), term, &push)?;
            Ok(COMMAND_FORMAT)
        })
    }

    fn fetch_shadows(
        &self,
        replica: ReplicaId,
        asking: Fence,
    ) -> impl Future<Output = Result<ShadowReport, PeerError>> + Send + 'static {
        self.clone().ask(replica, move |service| {
            let term = service.handle.leadership().borrow().term;
            let mut shadows = service.shadows.lock();
            Ok(shadows.report(service.clock.monotonic(), term, asking)?)
        })
    }
}
