//! Interface of the leader loop to the stores of heartbeat times on other replicas, replaceable in the
//! simulation.

use std::future::Future;
use std::sync::Arc;

use muster_model::ids::ReplicaId;

use crate::leader::heartbeat_store::{Fence, HeartbeatPush, HeartbeatReport, Superseded};

/// Failure to reach another replica's heartbeat times.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// The replica knows a later leader.
    #[error(transparent)]
    Superseded(#[from] Superseded),
    /// The replica did not answer.
    #[error("replica {replica} did not answer: {detail}")]
    Unreachable {
        /// The replica.
        replica: ReplicaId,
        /// Cause, as text.
        detail: String,
    },
}

/// Links to the other replicas.
pub trait PeerLinks: Send + Sync + 'static {
    /// Stores heartbeat times of hosts on a replica; returns the newest command format that it reads.
    fn push_heartbeats(
        &self,
        replica: ReplicaId,
        push: Arc<HeartbeatPush>,
    ) -> impl Future<Output = Result<u8, PeerError>> + Send + 'static;

    /// Requests a replica's stored heartbeat times.
    fn fetch_heartbeats(
        &self,
        replica: ReplicaId,
        asking: Fence,
    ) -> impl Future<Output = Result<HeartbeatReport, PeerError>> + Send + 'static;
}
