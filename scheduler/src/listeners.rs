//! Listening sockets of a replica.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::config::SchedulerConfig;
use crate::error::Error;

/// The open listeners of a replica.
#[derive(Debug)]
pub struct Listeners {
    /// For clients, workers and peers.
    pub grpc: TcpListener,
    /// For `/metrics`; `None` if not served.
    pub metrics: Option<TcpListener>,
}

impl Listeners {
    /// Listens on the configured addresses.
    ///
    /// # Errors
    /// The address that cannot be listened on.
    pub async fn bind(config: &SchedulerConfig) -> Result<Self, Error> {
        if let Some(advertised) = config.unreachable_address() {
            tracing::warn!(
                listen = %config.listen,
                advertised,
                "this replica listens on loopback, so other machines cannot reach its advertised address: \
                 set `listen` (--listen 0.0.0.0:7400)"
            );
        }
        let metrics = match config.metrics_listen {
            Some(address) => Some(listen(address, "metrics").await?),
            None => None,
        };
        Ok(Self {
            grpc: listen(config.listen, "gRPC").await?,
            metrics,
        })
    }
}

async fn listen(address: SocketAddr, purpose: &'static str) -> Result<TcpListener, Error> {
    let bound = TcpListener::bind(address).await;
    bound.map_err(|source| Error::Listen {
        address,
        purpose,
        source,
    })
}
