//! Transport trait between a replica and the network.

use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{BoxStream, StreamExt as _};
use muster_proto::raft::v1::{PeerRequest, PeerResponse};

use crate::member::peer::Peer;

/// Error of an exchange without an answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// The peer cannot be reached; an immediate retry is pointless.
    #[error("unreachable: {0}")]
    Unreachable(String),
    /// A replica of another cluster, or another replica, answers at the peer's address. Retrying is
    /// pointless.
    #[error("unexpected peer: {0}")]
    UnexpectedPeer(String),
    /// The exchange was interrupted; the peer may have received the request.
    #[error("interrupted: {0}")]
    Broken(String),
    /// No answer in time; the peer may have received the request.
    #[error("no answer within {timeout_ms} ms")]
    TimedOut {
        /// The limit.
        timeout_ms: u64,
    },
}

/// Sends messages to other replicas. The receiving side passes them to
/// [`Handle::serve`](crate::Handle::serve).
pub trait Transport: Send + Sync + 'static {
    /// Sends one request and waits for its answer.
    fn call(
        &self,
        to: Peer,
        request: PeerRequest,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<PeerResponse, TransportError>>;

    /// Sends requests and yields their answers in the same order; the stream ends with the first
    /// error. `timeout` bounds the wait for each answer.
    fn stream(
        &self,
        to: Peer,
        requests: BoxStream<'static, PeerRequest>,
        timeout: Duration,
    ) -> BoxStream<'static, Result<PeerResponse, TransportError>>;
}

/// Implements a stream as a sequence of calls: for transports without streams of their own.
pub fn stream_by_calls<F>(
    call: F,
    requests: BoxStream<'static, PeerRequest>,
) -> BoxStream<'static, Result<PeerResponse, TransportError>>
where
    F: Fn(PeerRequest) -> BoxFuture<'static, Result<PeerResponse, TransportError>> + Send + 'static,
{
    futures::stream::unfold(Some((call, requests)), |state| async move {
        let (call, mut requests) = state?;
        let request = requests.next().await?;
        let answer = call(request).await;
        let next = answer.is_ok().then_some((call, requests));
        Some((answer, next))
    })
    .boxed()
}
