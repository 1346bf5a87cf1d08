//! Reasons of failed TLS connections between peers that reach each other.

use std::error::Error;
use std::io;

use rustls::AlertDescription;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// First bytes of an HTTP/2 client (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Answer of a TLS server to anything but TLS: an alert, of a version 3 (RFC 8446, section 5.1).
const ALERT: [u8; 2] = [21, 3];

/// Reason of a failed connection, which persists until one side is reconfigured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMismatch {
    /// The peer uses TLS, this side does not.
    PeerEncrypts,
    /// This side uses TLS, the peer does not.
    PeerIsPlain,
    /// One side rejects the other's certificate.
    Certificate,
}

/// A trusted certificate that is not valid for this purpose.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unfit(pub(crate) String);

impl TlsMismatch {
    /// The mismatch shown by the error of a connection opened with certificates, if any.
    #[must_use]
    pub fn of(error: &(dyn Error + 'static)) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            let held = error.downcast_ref::<io::Error>();
            if let Some(held) = held.and_then(io::Error::get_ref) {
                if held.is::<Unfit>() {
                    return Some(Self::Certificate);
                }
                if let Some(error) = held.downcast_ref::<rustls::Error>() {
                    return Self::of_session(error);
                }
            }
            cause = error.source();
        }
        None
    }

    fn of_session(error: &rustls::Error) -> Option<Self> {
        match error {
            rustls::Error::InvalidMessage(_) => Some(Self::PeerIsPlain),
            rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => {
                Some(Self::Certificate)
            }
            rustls::Error::AlertReceived(
                AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::CertificateRequired
                | AlertDescription::UnknownCA,
            ) => Some(Self::Certificate),
            _ => None,
        }
    }
}

/// Whether the server at `authority` (`host:port`) answers the beginning of a plain connection as a TLS
/// server does.
///
/// # Errors
/// Connection errors.
pub async fn answers_in_tls(authority: &str) -> io::Result<bool> {
    let mut tcp = TcpStream::connect(authority).await?;
    tcp.write_all(PREFACE).await?;
    let mut answer = [0; ALERT.len()];
    tcp.read_exact(&mut answer).await?;
    Ok(answer == ALERT)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use rustls::{CertificateError, InvalidMessage};
    use tokio::net::TcpListener;

    use super::*;

    fn of(error: rustls::Error) -> Option<TlsMismatch> {
        let held = io::Error::new(io::ErrorKind::InvalidData, error);
        TlsMismatch::of(&io::Error::other(TlsErrorAbove(held)))
    }

    #[derive(Debug, thiserror::Error)]
    #[error("above")]
    struct TlsErrorAbove(#[source] io::Error);

    #[test]
    fn the_tls_mismatch_is_found_in_an_error() {
        let plain = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
        assert_eq!(of(plain), Some(TlsMismatch::PeerIsPlain));
        let stranger = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert_eq!(of(stranger), Some(TlsMismatch::Certificate));
        let refused = rustls::Error::AlertReceived(AlertDescription::UnknownCA);
        assert_eq!(of(refused), Some(TlsMismatch::Certificate));
        assert_eq!(of(rustls::Error::HandshakeNotComplete), None);
        let unfit = io::Error::other(Unfit("a worker's".to_owned()));
        assert_eq!(TlsMismatch::of(&unfit), Some(TlsMismatch::Certificate));
        assert_eq!(TlsMismatch::of(&io::Error::other("reset")), None);
    }

    #[tokio::test]
    async fn a_tls_server_is_recognized_by_its_answer_to_unencrypted_bytes() {
        for (answer, is_tls) in [
            (&[21_u8, 3, 3, 0, 2, 2, 50], true),
            (&[0, 0, 0, 4, 0, 0, 0], false),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let authority = listener.local_addr().unwrap().to_string();
            let server = async {
                let (mut tcp, _) = listener.accept().await.unwrap();
                let mut preface = [0; PREFACE.len()];
                tcp.read_exact(&mut preface).await.unwrap();
                tcp.write_all(answer).await.unwrap();
            };
            let (answers, ()) = tokio::join!(answers_in_tls(&authority), server);
            assert_eq!(answers.unwrap(), is_tls);
        }
    }
}
