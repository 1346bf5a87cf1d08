//! How the leader loop reaches the other replicas' shadows: a seam, so that the simulation can stand in.

use std::future::Future;
use std::sync::Arc;

use muster_model::ids::ReplicaId;

use crate::leader::shadow_store::{Fence, ShadowPush, ShadowReport, Superseded};

/// Why a replica's shadow was not reached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    /// It knows a later leader.
    #[error(transparent)]
    Superseded(#[from] Superseded),
    /// It did not answer.
    #[error("replica {replica} did not answer: {detail}")]
    Unreachable {
        /// Which one.
        replica: ReplicaId,
        /// Why, for people.
        detail: String,
    },
}

/// The other replicas.
pub trait PeerLinks: Send + Sync + 'static {
    /// Makes a replica remember when hosts were heard; it answers with the newest command format that it reads.
    fn push_shadows(
        &self,
        replica: ReplicaId,
        push: Arc<ShadowPush>,
    ) -> impl Future<Output = Result<u8, PeerError>> + Send + 'static;

    /// Asks a replica what it remembers.
    fn fetch_shadows(
        &self,
        replica: ReplicaId,
        asking: Fence,
    ) -> impl Future<Output = Result<ShadowReport, PeerError>> + Send + 'static;
}
