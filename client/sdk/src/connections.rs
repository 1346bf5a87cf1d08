//! A client's connections to replicas.

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
use crate::credential::{Credential, Line};
use crate::error::ClientError;
use crate::retry::innermost;

/// Silence on a connection after which the peer is asked for a sign of life: a replica that hangs while
/// it serves a watch is noticed after twice this.
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// Open connections, by address. Shared by all clones of a client.
#[derive(Debug)]
pub(crate) struct Connections {
    dialer: Dialer,
    credential: Credential,
    open: Mutex<BTreeMap<String, Channel>>,
    /// Whether a call was ever answered well: who speaks with whom is settled then.
    has_answered: AtomicBool,
}

impl Connections {
    /// None yet, to the replicas of a configuration, whose addresses and credentials are checked.
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

    /// A connection to a replica: the one that is open, else a new one. Calls over it say how long the caller waits, which is until
    /// `until`; without that they say nothing of it.
    ///
    /// # Errors
    /// Why there is none.
    pub(crate) async fn open(
        &self,
        address: &str,
        connect_deadline: Duration,
        until: Option<Instant>,
    ) -> Result<Line, Failure> {
        let open = self.lock().get(address).cloned();
        if let Some(channel) = open {
            return Ok(self.line(channel, until));
        }
        // Replicas say where others are: who listens there may be anybody.
        if self.credential.is_some() && !self.dialer.is_secure() && !is_loopback(address) {
            let told = "a token is not sent over a connection that others can read";
            return Err(Failure::Unconnected(told.to_owned()));
        }
        let endpoint = parse(address, connect_deadline)
            .map_err(|error| Failure::Unconnected(innermost(&error)))?;
        let channel = match self.dialer.connect(&endpoint).await {
            Ok(channel) => channel,
            Err(error) => return Err(self.unopened(address, error, connect_deadline).await),
        };
        let mut open = self.lock();
        let channel = open.entry(address.to_owned()).or_insert(channel).clone();
        Ok(self.line(channel, until))
    }

    fn line(&self, channel: Channel, until: Option<Instant>) -> Line {
        let patience = until.map(|until| until.saturating_duration_since(Instant::now()));
        self.credential.on(channel, patience)
    }

    /// A call was answered well.
    pub(crate) fn answered(&self) {
        self.has_answered.store(true, Ordering::Relaxed);
    }

    /// What a call that was not answered well says.
    pub(crate) async fn judge(&self, address: &str, status: Status, limit: Duration) -> Failure {
        if let Some(apart) = apart(&status) {
            return apart;
        }
        let is_broken = status.source().is_some();
        if is_broken && self.is_too_plain_for(address, limit).await {
            return too_plain();
        }
        Failure::Answered(status)
    }

    /// What a connection says that could not be opened.
    async fn unopened(&self, address: &str, error: transport::Error, limit: Duration) -> Failure {
        if let Some(apart) = apart(&error) {
            return apart;
        }
        let is_anybody_there = !is_nobody_there(&error);
        if is_anybody_there && self.is_too_plain_for(address, limit).await {
            return too_plain();
        }
        Failure::Unconnected(innermost(&error))
    }

    /// Whether a plain connection broke because who listens there wants TLS. It does not say so: that is looked at, for no longer
    /// than `limit`.
    async fn is_too_plain_for(&self, address: &str, limit: Duration) -> bool {
        let is_settled = self.dialer.is_secure() || self.has_answered.load(Ordering::Relaxed);
        if is_settled {
            return false;
        }
        let authority = address.split_once("://").map_or(address, |(_, rest)| rest);
        let answer = tokio::time::timeout(limit, answers_in_tls(authority)).await;
        matches!(answer, Ok(Ok(true)))
    }

    /// Forgets a connection that failed.
    pub(crate) fn drop(&self, address: &str) {
        self.lock().remove(address);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Channel>> {
        // Every change leaves the map consistent, so a panic elsewhere does not spoil it.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The failure that an error means if TLS keeps the two apart.
fn apart(error: &(dyn Error + 'static)) -> Option<Failure> {
    let mismatch = TlsMismatch::of(error)?;
    let cause = match mismatch {
        TlsMismatch::PeerIsPlain => "it does not speak TLS, and this side does".to_owned(),
        _ => innermost(error),
    };
    Some(Failure::Apart(mismatch, cause))
}

fn too_plain() -> Failure {
    let told = "it speaks TLS, and this side does not".to_owned();
    Failure::Apart(TlsMismatch::PeerEncrypts, told)
}

/// Whether an error says that nobody took the connection: to look again would tell no more.
fn is_nobody_there(error: &(dyn Error + 'static)) -> bool {
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

/// Whoever listens on the way would be the user from then on.
fn refuse_open_token(addresses: &[String]) -> Result<(), ClientError> {
    match addresses.iter().find(|address| !is_loopback(address)) {
        None => Ok(()),
        Some(address) => Err(ClientError::Config {
            field: "token",
            rule: format!(
                "it is not sent to {address} over a connection that others can read: name the cluster's authority (`tls.ca`, \
                 MUSTER_CACERT)"
            ),
        }),
    }
}

/// The endpoint of an address, or an error that says what an address looks like.
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
    async fn a_token_does_not_go_in_the_clear_to_where_others_say_that_a_replica_is() {
        let config = ClientConfig {
            token: Some(Token::random("ada")),
            ..ClientConfig::new(["127.0.0.1:1"])
        };
        let connections = Connections::new(&config).unwrap();
        // An address for documentation (RFC 5737): nothing is sent there.
        let learnt = connections.open("192.0.2.1:7400", Duration::from_secs(1), None);
        let Some(Failure::Unconnected(told)) = learnt.await.err() else {
            panic!("a connection was opened");
        };
        assert!(told.contains("a token is not sent"), "{told}");
    }

    #[test]
    fn where_nobody_listens_nothing_is_looked_at_again() {
        assert!(is_nobody_there(&io::Error::from(
            ErrorKind::ConnectionRefused
        )));
        assert!(!is_nobody_there(&io::Error::from(ErrorKind::BrokenPipe)));
        assert!(!is_nobody_there(&std::fmt::Error));
    }
}
