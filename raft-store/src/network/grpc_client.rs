//! The transport over gRPC.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{BoxStream, Stream, StreamExt as _};
use muster_proto::raft::v1::peer_request::Body;
use muster_proto::raft::v1::raft_service_client::RaftServiceClient;
use muster_proto::raft::v1::{PeerRequest, PeerResponse};
use muster_tls::Dialer;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

use crate::member::peer::Peer;
use crate::network::{MESSAGE_BYTES_MAX, Transport, TransportError};

/// Connect timeout.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of keep-alive probes on an idle connection, and the probe's timeout.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Flow-control window of a stream and of a connection, in bytes.
const WINDOW_BYTES: u32 = 16 * 1024 * 1024;

/// Connections are separate by purpose, so that votes and heartbeats never wait behind bulk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    Control,
    Append,
    Snapshot,
}

/// gRPC transport; connects on first use and reconnects after a loss.
#[derive(Debug, Clone)]
pub struct GrpcTransport {
    dialer: Dialer,
    channels: Arc<Mutex<BTreeMap<(String, Lane), Channel>>>,
}

impl GrpcTransport {
    /// A transport without connections; the dialer creates them.
    pub fn new(dialer: Dialer) -> Self {
        Self {
            dialer,
            channels: Arc::default(),
        }
    }

    fn client(
        &self,
        peer: &Peer,
        lane: Lane,
    ) -> Result<RaftServiceClient<Channel>, TransportError> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (peer.address.clone(), lane);
        let channel = match channels.get(&key) {
            Some(channel) => channel.clone(),
            None => {
                let channel = connect(&self.dialer, &peer.address)?;
                channels.insert(key, channel.clone());
                channel
            }
        };
        Ok(RaftServiceClient::new(channel)
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
            .max_encoding_message_size(MESSAGE_BYTES_MAX))
    }
}

fn connect(dialer: &Dialer, address: &str) -> Result<Channel, TransportError> {
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|error| TransportError::Unreachable(format!("address {address:?}: {error}")))?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES);
    Ok(dialer.connect_lazy(&endpoint))
}

impl Transport for GrpcTransport {
    fn call(
        &self,
        to: Peer,
        request: PeerRequest,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<PeerResponse, TransportError>> {
        let lane = match request.body {
            Some(Body::SnapshotChunk(_)) => Lane::Snapshot,
            _ => Lane::Control,
        };
        let client = self.client(&to, lane);
        async move {
            let mut client = client?;
            match tokio::time::timeout(timeout, client.call(request)).await {
                Ok(Ok(response)) => Ok(response.into_inner()),
                Ok(Err(status)) => Err(to_error(&status)),
                Err(_) => Err(timed_out(timeout)),
            }
        }
        .boxed()
    }

    fn stream(
        &self,
        to: Peer,
        requests: BoxStream<'static, PeerRequest>,
        timeout: Duration,
    ) -> BoxStream<'static, Result<PeerResponse, TransportError>> {
        let client = self.client(&to, Lane::Append);
        open_stream(client, requests, timeout)
            .flatten_stream()
            .boxed()
    }
}

/// Counts requests sent. (A named type also spares the compiler a proof about boxed streams that it cannot
/// make.)
struct Counted {
    requests: BoxStream<'static, PeerRequest>,
    sent: Arc<AtomicU64>,
}

impl Stream for Counted {
    type Item = PeerRequest;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<PeerRequest>> {
        let polled = self.requests.as_mut().poll_next(context);
        if matches!(polled, Poll::Ready(Some(_))) {
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
        polled
    }
}

/// Dials only once there is something to send: openraft backs off between two attempts only when asked for
/// a stream's first request, which a connection that is never made does not do. A peer that is down would
/// be dialled thousands of times a second.
async fn open_stream(
    client: Result<RaftServiceClient<Channel>, TransportError>,
    mut requests: BoxStream<'static, PeerRequest>,
    timeout: Duration,
) -> BoxStream<'static, Result<PeerResponse, TransportError>> {
    let mut client = match client {
        Ok(client) => client,
        Err(error) => return failed(error),
    };
    let Some(first) = requests.next().await else {
        return futures::stream::empty().boxed();
    };
    let sent = Arc::new(AtomicU64::new(0));
    let counted = Counted {
        requests: futures::stream::iter([first]).chain(requests).boxed(),
        sent: Arc::clone(&sent),
    };
    match tokio::time::timeout(timeout, client.append(counted)).await {
        Ok(Ok(response)) => Answers::new(response.into_inner(), sent, timeout).into_stream(),
        Ok(Err(status)) => failed(to_error(&status)),
        Err(_) => failed(timed_out(timeout)),
    }
}

/// Answers of a stream; the timeout runs only while a request awaits its answer.
struct Answers {
    answers: Streaming<PeerResponse>,
    sent: Arc<AtomicU64>,
    received: u64,
    timeout: Duration,
}

impl Answers {
    fn new(answers: Streaming<PeerResponse>, sent: Arc<AtomicU64>, timeout: Duration) -> Self {
        Self {
            answers,
            sent,
            received: 0,
            timeout,
        }
    }

    fn into_stream(self) -> BoxStream<'static, Result<PeerResponse, TransportError>> {
        futures::stream::unfold(Some(self), |state| async move {
            let mut this = state?;
            let answer = this.next().await?;
            let next = answer.is_ok().then_some(this);
            Some((answer, next))
        })
        .boxed()
    }

    async fn next(&mut self) -> Option<Result<PeerResponse, TransportError>> {
        let mut waited = false;
        loop {
            match tokio::time::timeout(self.timeout, self.answers.next()).await {
                Ok(Some(Ok(answer))) => {
                    self.received += 1;
                    return Some(Ok(answer));
                }
                Ok(Some(Err(status))) => return Some(Err(to_error(&status))),
                Ok(None) => return None,
                // The request may have been sent late in this wait; grant it a full timeout.
                Err(_) if self.sent.load(Ordering::Relaxed) > self.received => {
                    if waited {
                        return Some(Err(timed_out(self.timeout)));
                    }
                    waited = true;
                }
                Err(_) => waited = false,
            }
        }
    }
}

fn failed(error: TransportError) -> BoxStream<'static, Result<PeerResponse, TransportError>> {
    futures::stream::iter([Err(error)]).boxed()
}

fn timed_out(timeout: Duration) -> TransportError {
    TransportError::TimedOut {
        timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
    }
}

fn to_error(status: &Status) -> TransportError {
    let detail = format!("{:?}: {}", status.code(), status.message());
    match status.code() {
        Code::Unavailable | Code::Unimplemented => TransportError::Unreachable(detail),
        _ => TransportError::Broken(detail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No process listens on this port, and binding it requires root.
    const NOBODY: &str = "127.0.0.1:1";

    #[tokio::test]
    async fn an_unreachable_peer_is_dialled_when_a_request_arrives() {
        let transport = GrpcTransport::new(Dialer::new(None));
        let answer_to = |requests| {
            let peer = Peer::new(2, NOBODY.to_owned());
            transport.stream(peer, requests, Duration::from_secs(5))
        };
        let mut idle = answer_to(futures::stream::pending().boxed());
        let waited = tokio::time::timeout(Duration::from_millis(300), idle.next());
        assert!(waited.await.is_err(), "it was dialled unnecessarily");

        let request = futures::stream::iter([PeerRequest::default()]).boxed();
        let answer = answer_to(request).next().await;
        let refused = matches!(answer, Some(Err(TransportError::Unreachable(_))));
        assert!(refused, "{answer:?}");
    }
}
