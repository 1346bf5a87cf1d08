//! The proxy before one replica. Whoever connects to it is connected to the replica, and what they send each other passes
//! through here, each way by itself: it is kept as long as that way is lost.
//!
//! While the replica does not listen the proxy does not either, so that callers are refused as they would be without it.

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

use crate::cluster::network::End;
use crate::cluster::network::callers::Callers;

/// Bytes of each way of a connection that are kept here at most; what comes after them waits with its sender.
const KEPT_BYTES: usize = 16 * 1024;
/// Connections at once; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 1_024;
/// Pause between two looks whether the replica listens.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
/// Looks for a caller: one that is not known after so many is sent away, and calls again.
const CALLER_LOOKS_MAX: usize = 10;
/// Longest that a replica which listens takes to take a call, if it has room for one.
const LOOK_MAX: Duration = Duration::from_millis(500);

/// A replica, and where it is called.
#[derive(Clone, Copy, Debug)]
pub(in crate::cluster) struct Front {
    /// The replica's host.
    pub(in crate::cluster) host: usize,
    /// Where the proxy listens.
    pub(in crate::cluster) address: SocketAddr,
    /// Where the replica does.
    pub(in crate::cluster) target: SocketAddr,
}

/// What one end sends to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Way {
    pub(super) from: End,
    pub(super) to: End,
}

/// The proxy before one replica.
#[derive(Debug)]
pub(super) struct Proxy {
    front: Front,
    callers: Arc<Callers>,
    lost: watch::Receiver<BTreeSet<Way>>,
    /// Why a proxy could not listen.
    failure: Arc<OnceLock<Unheard>>,
    /// Something ended that the replica may have ended with.
    ended: Notify,
}

/// A proxy that could not listen: whoever listens there is none of us.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the proxy of a replica cannot listen at {address}: {reason}")]
pub struct Unheard {
    address: SocketAddr,
    reason: String,
}

impl Proxy {
    /// One that keeps what is `lost`, and tells of its first `failure`.
    pub(super) fn before(
        front: Front,
        callers: Arc<Callers>,
        lost: watch::Receiver<BTreeSet<Way>>,
        failure: Arc<OnceLock<Unheard>>,
    ) -> Self {
        Self {
            front,
            callers,
            lost,
            failure,
            ended: Notify::new(),
        }
    }

    /// Listens whenever the replica does, for ever. Connections outlive both: what was sent is not lost with its sender.
    pub(super) async fn work(self: Arc<Self>) {
        let mut connections = JoinSet::new();
        loop {
            if self.has_replica().await {
                match TcpListener::bind(self.front.address).await {
                    Ok(listener) => self.listen(&listener, &mut connections).await,
                    Err(error) => {
                        let unheard = Unheard {
                            address: self.front.address,
                            reason: error.to_string(),
                        };
                        // The first one says enough.
                        drop(self.failure.set(unheard));
                    }
                }
            }
            sleep(LOOK_PAUSE).await;
        }
    }

    /// Lets callers in until the replica does not listen any more.
    async fn listen(self: &Arc<Self>, listener: &TcpListener, connections: &mut JoinSet<()>) {
        loop {
            tokio::select! {
                accepted = listener.accept(), if connections.len() < CONNECTIONS_MAX => match accepted {
                    Ok((near, caller)) => {
                        connections.spawn(Arc::clone(self).carry(near, caller));
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

    /// Whether the replica listens. One that stands still does: its kernel takes calls for it, as long as there is room.
    async fn has_replica(&self) -> bool {
        let connecting = TcpStream::connect(self.front.target);
        !matches!(timeout(LOOK_MAX, connecting).await, Ok(Err(_)))
    }

    /// Carries one connection until both ways have ended.
    async fn carry(self: Arc<Self>, near: TcpStream, caller: SocketAddr) {
        let replica = End::Host(self.front.host);
        let Some(caller) = self.who_is(caller).await else {
            return;
        };
        let way = |from, to| Way { from, to };
        let (there, back) = (way(caller, replica), way(replica, caller));
        // A call that is lost, or whose answer is, is made again as long as somebody waits.
        self.until_found(&[there, back]).await;
        if has_left(&near) {
            return;
        }
        let Ok(far) = TcpStream::connect(self.front.target).await else {
            self.ended.notify_one();
            return;
        };
        for stream in [&near, &far] {
            // What is not sent at once is sent later: no reason to break the connection.
            drop(stream.set_nodelay(true));
        }
        let (from_caller, to_caller) = near.into_split();
        let (from_replica, to_replica) = far.into_split();
        tokio::join!(
            self.pass(from_caller, to_replica, there),
            self.pass(from_replica, to_caller, back)
        );
    }

    /// Who calls; none if that is not found out: what is not known to be a user's would have to be cut off now and then.
    async fn who_is(&self, caller: SocketAddr) -> Option<End> {
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

    /// Passes on what is sent one way, and in the end that this was all, once that way is not lost. Whoever cannot be sent
    /// anything any more says so the other way.
    async fn pass(&self, mut from: OwnedReadHalf, mut to: OwnedWriteHalf, way: Way) {
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

    /// Waits until none of these ways is lost.
    async fn until_found(&self, ways: &[Way]) {
        let mut lost = self.lost.clone();
        let found = |lost: &BTreeSet<Way>| !ways.iter().any(|way| lost.contains(way));
        // Whoever could tell more goes with all proxies.
        drop(lost.wait_for(found).await);
    }
}

/// Whether a caller has gone, or says nothing more.
fn has_left(stream: &TcpStream) -> bool {
    let mut polled = [PollFd::new(stream, PollFlags::RDHUP)];
    let at_once = Timespec::default();
    poll(&mut polled, Some(&at_once)).is_ok_and(|count| count > 0)
}
