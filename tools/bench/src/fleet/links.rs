//! Connections shared by all simulated workers, and the assumed leader.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use tonic::transport::{Channel, Endpoint};

/// HTTP/2 flow control window of one connection: thousands of streams share it.
const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;
/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

/// Connections to every replica, opened when they are first used.
pub(super) struct Links {
    replicas: Vec<Replica>,
    /// Index of the assumed leader.
    target: AtomicUsize,
}

struct Replica {
    address: String,
    channels: Vec<Channel>,
}

impl Links {
    pub(super) fn new(addresses: &[String], connections: usize) -> anyhow::Result<Self> {
        let replicas = addresses.iter().map(|address| {
            let endpoint = Endpoint::from_shared(format!("http://{address}"))
                .with_context(|| format!("the address {address}"))?
                .tcp_nodelay(true)
                .connect_timeout(CONNECT_TIMEOUT)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES);
            let channels = (0..connections).map(|_| endpoint.connect_lazy());
            Ok(Replica {
                address: address.clone(),
                channels: channels.collect(),
            })
        });
        Ok(Self {
            replicas: replicas.collect::<anyhow::Result<_>>()?,
            target: AtomicUsize::new(0),
        })
    }

    /// The replica that a worker should try, and its connection there.
    pub(super) fn to_leader(&self, worker: usize) -> (usize, Channel) {
        let target = self.target.load(Ordering::Relaxed);
        let channels = &self.replicas[target].channels;
        (target, channels[worker % channels.len()].clone())
    }

    /// Notes that the tried replica does not lead, and `leader` does, if that is known.
    pub(super) fn redirect(&self, tried: usize, leader: Option<&str>) {
        let known = leader.and_then(|leader| {
            self.replicas
                .iter()
                .position(|replica| replica.address == leader)
        });
        let next = known.unwrap_or((tried + 1) % self.replicas.len());
        // Another worker may have found it first: its result is as good, and kept.
        let _found =
            self.target
                .compare_exchange(tried, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}
