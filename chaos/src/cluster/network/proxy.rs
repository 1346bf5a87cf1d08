//! Proxy before one replica. Each connection to it is forwarded to the replica, and each direction is
//! relayed independently: it is held back as long as that direction is cut.
//!
//! While the replica does not listen the proxy does not either, so that callers are refused as they would
//! be without it.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Duration, sleep, timeout};

use crate::cluster::network::Endpoint;
use crate::cluster::network::peer_processes::PeerProcesses;

/// Maximum bytes buffered here per direction of a connection; further bytes wait at their sender.
const KEPT_BYTES: usize = 16 * 1024;
/// Maximum concurrent connections; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 1_024;
/// Interval between probes of the replica.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
/// Attempts to identify a caller; one still unknown after these is disconnected and retries.
const CALLER_LOOKS_MAX: usize = 10;
/// Maximum time that a listening replica with room in its backlog takes to accept a connection.
const LOOK_MAX: Duration = Duration::from_millis(500);

/// A replica and its proxy's address.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) struct ProxyTarget {
    /// Host of the replica.
    pub(in crate::cluster) host: usize,
    /// Address on which the proxy listens.
    pub(in crate::cluster) address: SocketAddr,
    /// Address on which the replica listens.
    pub(in crate::cluster) target: SocketAddr,
}

/// A direction from one end to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Flow {
    pub(super) from: Endpoint,
    pub(super) to: Endpoint,
}

/// The proxy before one replica.
#[derive(Debug)]
pub(super) struct Proxy {
    front: ProxyTarget,
    callers: Arc<PeerProcesses>,
    lost: watch::Receiver<BTreeSet<Flow>>,
    /// The first failure of a proxy to listen.
    failure: Arc<OnceLock<ProxyListenError>>,
    /// Signals the end of something that the replica may have ended with.
    ended: Notify,
}

/// A proxy could not listen: the listener at its address is not part of the cluster.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the proxy of a replica cannot listen at {address}: {reason}")]
pub struct ProxyListenError {
    address: SocketAddr,
    reason: String,
}

impl Proxy {
    /// Creates a proxy that holds back the directions in `lost` and reports its first `failure`.
    pub(super) fn before(
        front: ProxyTarget,
        callers: Arc<PeerProcesses>,
        lost: watch::Receiver<BTreeSet<Flow>>,
        failure: Arc<OnceLock<ProxyListenError>>,
    ) -> Self {
        Self {
            front,
            callers,
            lost,
            failure,
            ended: Notify::new(),
        }
    }

    /// Listens forever whenever the replica listens. Connections outlive both: data already sent is not
    /// lost with its sender.
    pub(super) async fn work(self: Arc<Self>) {
        let mut connections = JoinSet::new();
        loop {
            if self.has_replica().await {
                match TcpListener::bind(self.front.address).await {
                    Ok(listener) => self.listen(&listener, &mut connections).await,
                    Err(error) => {
                        let unheard = ProxyListenError {
                            address: self.front.address,
                            reason: error.to_string(),
                        };
                        // Only the first failure is kept.
                        drop(self.failure.set(unheard));
                    }
                }
            }
            sleep(LOOK_PAUSE).await;
        }
    }

    /// Accepts connections until the replica stops listening.
    async fn listen(self: &Arc<Self>, listener: &TcpListener, connections: &mut JoinSet<()>) {
        loop {
            tokio::select! {
                accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                    Ok((near, caller)) => {
                        connections.spawn(Arc::clone(self).relay_connection(near, caller));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "the proxy of a replica cannot accept");
                        sleep(LOOK_PAUSE).await;
                    }
                },
                () = self.ended.notified() => if !self.has_replica().await {
                    return;
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    /// Whether the replica listens. A paused one does: its kernel accepts connections as long as its
    /// backlog has room.
    async fn has_replica(&self) -> bool {
        let connecting = TcpStream::connect(self.front.target);
        !matches!(timeout(LOOK_MAX, connecting).await, Ok(Err(_)))
    }

    /// Relays one connection until both directions have ended.
    async fn relay_connection(self: Arc<Self>, near: TcpStream, caller: SocketAddr) {
        let replica = Endpoint::Host(self.front.host);
        let Some(caller) = self.identify_caller(caller).await else {
            return;
        };
        let way = |from, to| Flow { from, to };
        let (there, back) = (way(caller, replica), way(replica, caller));
        // A connection attempt whose packets are lost is retried as long as the caller waits.
        self.until_found(&[there, back]).await;
        if has_left(&near) {
            return;
        }
        let Ok(far) = TcpStream::connect(self.front.target).await else {
            self.ended.notify_one();
            return;
        };
        for stream in [&near, &far] {
            // Delayed sending is no reason to drop the connection.
            drop(stream.set_nodelay(true));
        }
        let (from_caller, to_caller) = near.into_split();
        let (from_replica, to_replica) = far.into_split();
        tokio::join!(
            self.relay_direction(from_caller, to_replica, there),
            self.relay_direction(from_replica, to_caller, back)
        );
    }

    /// Identifies the caller. `None` if that fails: unless it is known to be a user, the connection may
    /// have to be cut.
    async fn identify_caller(&self, caller: SocketAddr) -> Option<Endpoint> {
        for _ in 0..CALLER_LOOKS_MAX {
            let (callers, own) = (Arc::clone(&self.callers), self.front.address);
            let asked = tokio::task::spawn_blocking(move || callers.at(caller, own));
            if let Ok(Some(end)) = asked.await {
                return Some(end);
            }
            sleep(LOOK_PAUSE).await;
        }
        None
    }

    /// Relays one direction, including its end of stream, while it is not cut. An unreachable receiver is
    /// reported through the other direction.
    async fn relay_direction(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, way: Flow) {
        let mut kept = vec![0; KEPT_BYTES];
        loop {
            let count = from.read(&mut kept).await.unwrap_or(0);
            if count == 0 {
                self.ended.notify_one();
            }
            self.until_found(&[way]).await;
            if count == 0 || to.write_all(&kept[..count]).await.is_err() {
                return;
            }
        }
    }

    /// Waits until none of these directions is cut.
    async fn until_found(&self, ways: &[Flow]) {
        let mut lost = self.lost.clone();
        let found = |lost: &BTreeSet<Flow>| !ways.iter().any(|way| lost.contains(way));
        // The sender is dropped only together with all proxies.
        drop(lost.wait_for(found).await);
    }
}

/// Whether a caller has disconnected or closed its side.
fn has_left(stream: &TcpStream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::RDHUP)];
    let at_once = Timespec::default();
    poll(&mut polled, Some(&at_once)).is_ok_and(|count| count > 0)
}
