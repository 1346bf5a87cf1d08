//! Connections of a client to replicas.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_tls::{Dialer, Tls, TlsMismatch, answers_in_tls, is_loopback};
use tokio::time::Instant;
use tonic::Status;
use tonic::transport::{self, Channel, Endpoint};

use crate::calls::Failure;
use crate::config::ClientConfig;
use crate::error::ClientError;
use crate::transport::credential::{AuthenticatedChannel, Credential};
use crate::transport::retry::innermost;

/// Keep-alive interval and timeout of an idle connection: a replica that hangs while it serves a watch is
/// noticed after twice this.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// Open connections by address, shared by all clones of a client.
#[derive(Debug)]
pub(crate) struct Connections {
    dialer: Dialer,
    credential: Credential,
    open: Mutex<BTreeMap<String, Channel>>,
    /// Whether any call ever succeeded: then the TLS settings are known to match.
    has_answered: AtomicBool,
}

impl Connections {
    /// Creates an empty set for the replicas of a configuration, whose addresses and credentials are
    /// checked.
    pub(crate) fn new(config: &ClientConfig) -> Result<Self, ClientError> {
        if config.addresses.is_empty() {
            return Err(ClientError::Config {
                field: "addresses",
                rule: "must name at least one replica as host:port".to_owned(),
            });
        }
        if config.token.is_some() && !config.tls.is_on() {
            refuse_open_token(&config.addresses)?;
        }
        for address in &config.addresses {
            endpoint(address, config.connect_deadline)?;
        }
        let tls = Tls::load(&config.tls).map_err(|error| ClientError::Config {
            field: "tls",
            rule: error.to_string(),
        })?;
        tls.iter().for_each(Tls::keep_current);
        Ok(Self {
            dialer: Dialer::new(tls),
            credential: Credential::of(config.token.as_ref())?,
            open: Mutex::default(),
            has_answered: AtomicBool::new(false),
        })
    }

    /// Returns the open connection to a replica, or a new one. Calls over it carry the timeout of the
    /// caller, which ends at `until`; without it they carry none.
    ///
    /// # Errors
    /// The connection failed.
    pub(crate) async fn open(
        &self,
        address: &str,
        connect_deadline: Duration,
        until: Option<Instant>,
    ) -> Result<AuthenticatedChannel, Failure> {
        let open = self.lock().get(address).cloned();
        if let Some(channel) = open {
            return Ok(self.authenticated(channel, until));
        }
        // These addresses come from replicas: any server may listen there.
        if self.credential.is_some() && !self.dialer.is_secure() && !is_loopback(address) {
            let cause = "a token is not sent over a connection that others can read";
            return Err(Failure::Unreachable(cause.to_owned()));
        }
        let endpoint = parse(address, connect_deadline)
            .map_err(|error| Failure::Unreachable(innermost(&error)))?;
        let channel = match self.dialer.connect(&endpoint).await {
            Ok(channel) => channel,
            Err(error) => {
                return Err(self
                    .classify_unopened(address, error, connect_deadline)
                    .await);
            }
        };
        let mut open = self.lock();
        let channel = open.entry(address.to_owned()).or_insert(channel).clone();
        Ok(self.authenticated(channel, until))
    }

    fn authenticated(&self, channel: Channel, until: Option<Instant>) -> AuthenticatedChannel {
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        self.credential.on(channel, timeout)
    }

    /// Records a successful call.
    pub(crate) fn record_success(&self) {
        self.has_answered.store(true, Ordering::Relaxed);
    }

    /// Classifies the status of an unsuccessful call.
    pub(crate) async fn classify(&self, address: &str, status: Status, limit: Duration) -> Failure {
        if let Some(mismatch) = tls_mismatch(&status) {
            return mismatch;
        }
        let is_broken = status.source().is_some();
        if is_broken && self.expects_tls(address, limit).await {
            return tls_required();
        }
        Failure::Answered(status)
    }

    /// Classifies the error of a connection that could not be opened.
    async fn classify_unopened(
        &self,
        address: &str,
        error: transport::Error,
        limit: Duration,
    ) -> Failure {
        if let Some(mismatch) = tls_mismatch(&error) {
            return mismatch;
        }
        let is_listening = !is_refused(&error);
        if is_listening && self.expects_tls(address, limit).await {
            return tls_required();
        }
        Failure::Unreachable(innermost(&error))
    }

    /// Whether a plain connection broke because the server expects TLS. The error does not show it: this is
    /// probed, for at most `limit`.
    async fn expects_tls(&self, address: &str, limit: Duration) -> bool {
        let is_settled = self.dialer.is_secure() || self.has_answered.load(Ordering::Relaxed);
        if is_settled {
            return false;
        }
        let authority = address.split_once("://").map_or(address, |(_, rest)| rest);
        let answer = tokio::time::timeout(limit, answers_in_tls(authority)).await;
        matches!(answer, Ok(Ok(true)))
    }

    /// Drops a failed connection.
    pub(crate) fn drop(&self, address: &str) {
        self.lock().remove(address);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Channel>> {
        // Every change leaves the map consistent, so a panic elsewhere does no harm.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Converts an error caused by mismatching TLS settings.
fn tls_mismatch(error: &(dyn Error + 'static)) -> Option<Failure> {
    let mismatch = TlsMismatch::of(error)?;
    let cause = match mismatch {
        TlsMismatch::PeerIsPlain => "it does not speak TLS, and this side does".to_owned(),
        _ => innermost(error),
    };
    Some(Failure::TlsMismatch(mismatch, cause))
}

fn tls_required() -> Failure {
    let cause = "it speaks TLS, and this side does not".to_owned();
    Failure::TlsMismatch(TlsMismatch::PeerEncrypts, cause)
}

/// Whether the error shows that the connection was not accepted: a probe would reveal no more.
fn is_refused(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return matches!(
                error.kind(),
                ErrorKind::ConnectionRefused
                    | ErrorKind::TimedOut
                    | ErrorKind::HostUnreachable
                    | ErrorKind::NetworkUnreachable
            );
        }
        cause = error.source();
    }
    false
}

/// Anyone who intercepts the token can impersonate the user.
fn refuse_open_token(addresses: &[String]) -> Result<(), ClientError> {
    match addresses.iter().find(|address| !is_loopback(address)) {
        None => Ok(()),
        Some(address) => Err(ClientError::Config {
            field: "token",
            rule: format!(
                "it is not sent to {address} over a connection that others can read: name the cluster's authority \
                 (`tls.ca`, MUSTER_CACERT)"
            ),
        }),
    }
}

/// Builds the endpoint of an address; the error shows the expected format.
fn endpoint(address: &str, connect_deadline: Duration) -> Result<Endpoint, ClientError> {
    let rule = || ClientError::Config {
        field: "addresses",
        rule: format!("`{address}` is not host:port"),
    };
    let endpoint = parse(address, connect_deadline).map_err(|_| rule())?;
    let authority = endpoint.uri().authority().ok_or_else(rule)?;
    authority.port().ok_or_else(rule)?;
    Ok(endpoint)
}

fn parse(address: &str, connect_deadline: Duration) -> Result<Endpoint, transport::Error> {
    let url = if address.contains("://") {
        address.to_owned()
    } else {
        format!("http://{address}")
    };
    Ok(Endpoint::from_shared(url)?
        .connect_timeout(connect_deadline)
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_tls::Token;

    use super::*;

    #[tokio::test]
    async fn a_token_is_not_sent_unencrypted_to_an_address_reported_by_replicas() {
        let config = ClientConfig {
            token: Some(Token::random("ada")),
            ..ClientConfig::new(["127.0.0.1:1"])
        };
        let connections = Connections::new(&config).unwrap();
        // An address reserved for documentation (RFC 5737): nothing is sent there.
        let reported = connections.open("192.0.2.1:7400", Duration::from_secs(1), None);
        let Some(Failure::Unreachable(cause)) = reported.await.err() else {
            panic!("a connection was opened");
        };
        assert!(cause.contains("a token is not sent"), "{cause}");
    }

    #[test]
    fn a_refused_connection_is_not_probed() {
        assert!(is_refused(&io::Error::from(ErrorKind::ConnectionRefused)));
        assert!(!is_refused(&io::Error::from(ErrorKind::BrokenPipe)));
        assert!(!is_refused(&std::fmt::Error));
    }
}
