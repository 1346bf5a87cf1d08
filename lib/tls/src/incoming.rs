//! Accepting connections.

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

/// Longest that a peer may take to say who it is.
const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Peers that may be about to say it at a time.
const HANDSHAKES_MAX: usize = 512;
/// Connections that wait to be served.
const ACCEPTED_MAX: usize = 64;
/// Pause after a connection could not be accepted, where the process has no file left for instance.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// Who is at the other end of an encrypted connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecuredPeer {
    /// Where it is.
    pub address: Option<SocketAddr>,
    /// Whom its certificate speaks for; none if it showed none, or one that does not say.
    pub role: Option<PeerRole>,
}

/// An encrypted connection whose handshake is done.
#[derive(Debug)]
pub struct SecuredConnection {
    stream: TlsStream<TcpStream>,
    peer: SecuredPeer,
}

/// The connections that a listener accepts; handshakes hold up none but their own.
///
/// Who fails is told of in the log at the level of debugging: anybody can make a connection.
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
    let places = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else {
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
            let shaken = timeout(HANDSHAKE_MAX, shake_hands(tcp, &tls)).await;
            drop(place);
            match shaken.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                // The server is gone: so is the connection.
                Ok(connection) => drop(sender.send(Ok(connection)).await),
                Err(error) => {
                    tracing::debug!(%error, "a connection was refused: its handshake failed")
                }
            }
        });
    }
}

async fn shake_hands(tcp: TcpStream, tls: &Tls) -> io::Result<SecuredConnection> {
    // Else every second small message waits 40 ms for the acknowledgement of the one before.
    tcp.set_nodelay(true)?;
    let address = tcp.peer_addr().ok();
    let server = tls.current().server.clone();
    let server = server.ok_or_else(|| io::Error::other("this process has no certificate"))?;
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
