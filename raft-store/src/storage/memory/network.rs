//! In-memory delivery of messages between replicas of one process, with links that can be cut.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::BoxStream;
use muster_proto::raft::v1::{PeerRequest, PeerResponse};

use crate::apply::state_machine::StateMachine;
use crate::member::peer::Peer;
use crate::network::{Transport, TransportError, stream_by_calls};
use crate::replica::handle::Handle;

/// Answers a request on behalf of a replica.
type Endpoint = Arc<dyn Fn(PeerRequest) -> BoxFuture<'static, PeerResponse> + Send + Sync>;

#[derive(Default)]
struct Links {
    endpoints: BTreeMap<u64, Endpoint>,
    /// Directed links (from, to) that drop all messages.
    cut: BTreeSet<(u64, u64)>,
}

/// Delivers at once; clones share the links.
#[derive(Clone, Default)]
pub struct MemoryNetwork {
    links: Arc<Mutex<Links>>,
}

impl MemoryNetwork {
    /// A network without replicas.
    pub fn new() -> Self {
        Self::default()
    }

    /// Connects a replica under its id.
    pub fn connect<M: StateMachine>(&self, id: u64, handle: &Handle<M>) {
        let handle = handle.clone();
        let endpoint: Endpoint = Arc::new(move |request| {
            let handle = handle.clone();
            async move { handle.serve(request).await }.boxed()
        });
        self.links().endpoints.insert(id, endpoint);
    }

    /// Stops messages from one replica to another, requests and answers alike.
    pub fn cut(&self, from: u64, to: u64) {
        self.links().cut.insert((from, to));
    }

    /// Restores every link.
    pub fn heal(&self) {
        self.links().cut.clear();
    }

    fn endpoint(&self, from: u64, to: u64) -> Option<Endpoint> {
        let links = self.links();
        let open = !links.cut.contains(&(from, to));
        links.endpoints.get(&to).filter(|_| open).cloned()
    }

    fn links(&self) -> MutexGuard<'_, Links> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Transport for MemoryNetwork {
    fn call(
        &self,
        to: Peer,
        request: PeerRequest,
        _timeout: Duration,
    ) -> BoxFuture<'static, Result<PeerResponse, TransportError>> {
        let (network, from) = (self.clone(), request.from);
        async move {
            let unreachable = || TransportError::Unreachable(format!("no link to {to}"));
            let endpoint = network.endpoint(from, to.id).ok_or_else(unreachable)?;
            let response = endpoint(request).await;
            network.endpoint(to.id, from).ok_or_else(unreachable)?;
            Ok(response)
        }
        .boxed()
    }

    fn stream(
        &self,
        to: Peer,
        requests: BoxStream<'static, PeerRequest>,
        timeout: Duration,
    ) -> BoxStream<'static, Result<PeerResponse, TransportError>> {
        let network = self.clone();
        let call = move |request| network.call(to.clone(), request, timeout);
        stream_by_calls(call, requests)
    }
}

impl fmt::Debug for MemoryNetwork {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("MemoryNetwork")
            .finish_non_exhaustive()
    }
}
