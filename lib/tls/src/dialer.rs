//! Outgoing connections.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint, Error};
use tower::Service;

use crate::material::Tls;
use crate::mismatch::Unfit;
use crate::peer_role::{PeerRole, role_of};

/// Opens connections to replicas: plain ones, or encrypted ones to peers that prove to be a replica.
#[derive(Clone, Debug, Default)]
pub struct Dialer {
    tls: Option<Tls>,
    /// Whether the peer need not be a replica: it is a foreign server.
    is_foreign: bool,
}

impl Dialer {
    /// A dialer with these certificates; without any, connections are plain.
    #[must_use]
    pub fn new(tls: Option<Tls>) -> Self {
        Self {
            tls,
            is_foreign: false,
        }
    }

    /// A dialer to foreign servers, whose certificates contain no role: only their name and the authority
    /// count.
    #[must_use]
    pub fn to_foreign(tls: Option<Tls>) -> Self {
        Self {
            tls,
            is_foreign: true,
        }
    }

    /// Whether connections are encrypted.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    /// A connection that is opened on first use, and reopened after a loss.
    #[must_use]
    pub fn connect_lazy(&self, endpoint: &Endpoint) -> Channel {
        match &self.tls {
            None => endpoint.connect_lazy(),
            Some(tls) => endpoint.connect_with_connector_lazy(self.connector(tls)),
        }
    }

    /// Opens a connection.
    ///
    /// # Errors
    /// The connection failed.
    pub async fn connect(&self, endpoint: &Endpoint) -> Result<Channel, Error> {
        match &self.tls {
            None => endpoint.connect().await,
            Some(tls) => endpoint.connect_with_connector(self.connector(tls)).await,
        }
    }

    fn connector(&self, tls: &Tls) -> Connector {
        Connector {
            tls: tls.clone(),
            is_foreign: self.is_foreign,
        }
    }
}

/// Opens one connection with the certificates that are current at that time.
#[derive(Clone, Debug)]
struct Connector {
    tls: Tls,
    is_foreign: bool,
}

impl Service<Uri> for Connector {
    type Response = TokioIo<TlsStream<TcpStream>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connector = TlsConnector::from(self.tls.current().client.clone());
        let is_foreign = self.is_foreign;
        Box::pin(async move {
            let (host, port) = host_and_port(&uri)?;
            let name = ServerName::try_from(host.clone())
                .map_err(|error| invalid(format!("`{host}` is not a host name: {error}")))?;
            let tcp = TcpStream::connect((host, port)).await?;
            // Otherwise every second small message waits 40 ms for the acknowledgement of the one before.
            tcp.set_nodelay(true)?;
            let stream = connector.connect(name, tcp).await?;
            if !is_foreign {
                check_replica(&stream)?;
            }
            Ok(TokioIo::new(stream))
        })
    }
}

fn host_and_port(uri: &Uri) -> io::Result<(String, u16)> {
    let host = uri
        .host()
        .ok_or_else(|| invalid(format!("`{uri}` has no host")))?;
    let port = uri
        .port_u16()
        .ok_or_else(|| invalid(format!("`{uri}` has no port")))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok((host.to_owned(), port))
}

/// Rejects peers that are not replicas: the authority also vouches for workers and users, which must not
/// impersonate one.
fn check_replica(stream: &TlsStream<TcpStream>) -> io::Result<()> {
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().and_then(<[_]>::first);
    match certificate.and_then(role_of) {
        Some(PeerRole::Replica) => Ok(()),
        Some(other) => Err(unfit(format!(
            "its certificate is for {other}, not for a replica"
        ))),
        None => Err(unfit(format!(
            "its certificate does not identify a replica ({} among its alternative names)",
            PeerRole::Replica.uri()
        ))),
    }
}

fn invalid(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

fn unfit(problem: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, Unfit(problem))
}
