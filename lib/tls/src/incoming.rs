//! Incoming connections.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::server::Connected;

use crate::material::Tls;
use crate::peer_role::{PeerRole, role_of};

/// Timeout of a TLS handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Most concurrent handshakes.
const HANDSHAKES_MAX: usize = 512;
/// Most accepted connections waiting to be served.
const ACCEPTED_MAX: usize = 64;
/// Pause after a failed accept, for example when the process is out of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Peer of an encrypted connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecuredPeer {
    /// Remote address.
    pub address: Option<SocketAddr>,
    /// Role in its certificate; none without a certificate or role.
    pub role: Option<PeerRole>,
}

/// An encrypted connection whose handshake is done.
#[derive(Debug)]
pub struct SecuredConnection {
    stream: TlsStream<TcpStream>,
    peer: SecuredPeer,
}

/// The connections that a listener accepts; a handshake does not block other connections.
///
/// A failed handshake is logged at debug level: anyone can open a connection.
#[must_use]
pub fn incoming(listener: TcpListener, tls: Tls) -> ReceiverStream<io::Result<SecuredConnection>> {
    let (sender, accepted) = mpsc::channel(ACCEPTED_MAX);
    tokio::spawn(accept(listener, tls, sender));
    ReceiverStream::new(accepted)
}

async fn accept(
    listener: TcpListener,
    tls: Tls,
    sender: mpsc::Sender<io::Result<SecuredConnection>>,
) {
    let permits = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
            return;
        };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = sender.closed() => return,
        };
        let tcp = match accepted {
            Ok((tcp, _)) => tcp,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let (tls, sender) = (tls.clone(), sender.clone());
        tokio::spawn(async move {
            let outcome = timeout(HANDSHAKE_MAX, handshake(tcp, &tls)).await;
            drop(permit);
            match outcome.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                // The server is gone, so the connection is dropped.
                Ok(connection) => drop(sender.send(Ok(connection)).await),
                Err(error) => {
                    tracing::debug!(%error, "connection rejected: handshake failed")
                }
            }
        });
    }
}

async fn handshake(tcp: TcpStream, tls: &Tls) -> io::Result<SecuredConnection> {
    // Otherwise every second small message waits 40 ms for the acknowledgement of the one before.
    tcp.set_nodelay(true)?;
    let address = tcp.peer_addr().ok();
    let server = tls
        .current()
        .server
        .clone()
        .ok_or_else(|| io::Error::other("this process has no certificate"))?;
    let stream = TlsAcceptor::from(server).accept(tcp).await?;
    let (_, session) = stream.get_ref();
    let certificate = session.peer_certificates().and_then(<[_]>::first);
    let role = certificate.and_then(role_of);
    Ok(SecuredConnection {
        stream,
        peer: SecuredPeer { address, role },
    })
}

impl Connected for SecuredConnection {
    type ConnectInfo = SecuredPeer;

    fn connect_info(&self) -> SecuredPeer {
        self.peer.clone()
    }
}

impl AsyncRead for SecuredConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for SecuredConnection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
