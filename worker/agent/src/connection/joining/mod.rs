//! Joining: obtaining and renewing the certificate of a worker that has none, first with a join token, then
//! with the certificate itself.
//!
//! The worker creates its own key, which never leaves the host. Before it sends its token it authenticates
//! the cluster: by `tls.ca`, or by the hash of the cluster's authorities in the token.

mod identity;
mod renewal;
mod request;

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use identity::Identity;
use muster_model::ids::RequestId;
use muster_monitor::replicas::KnownReplicas;
use muster_proto::status::ErrorReport;
use muster_tls::issue::IssueError;
use muster_tls::{Dialer, JoinToken, PeerRole, Tls};
use renewal::keep_renewed;
use request::{JoinFailure, Replica};

use crate::config::WorkerConfig;
use crate::error::Error;

/// The variable that holds the join token itself.
pub(crate) const JOIN_TOKEN_VARIABLE: &str = "MUSTER_JOIN_TOKEN";
/// Pause before all replicas are asked again.
const PAUSE: Duration = Duration::from_secs(2);
/// Refusals that are the same at every replica and at any time.
const FINAL: [&str; 6] = [
    "BAD_JOIN_TOKEN",
    "JOIN_TOKEN_SPENT",
    "JOIN_TOKEN_OF_OTHERS",
    "INVALID_REQUEST",
    "REQUEST_REUSED",
    "BAD_CSR",
];

/// Reasons why a worker could not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// There is no valid certificate and no token.
    #[error(
        "this worker has no valid certificate and no join token: {problem}. An admin creates one \
         with `muster worker token create`; set `join_token_file` or MUSTER_JOIN_TOKEN"
    )]
    NoToken {
        /// The problem with the file or the variable.
        problem: String,
    },
    /// The cluster refuses.
    #[error("the cluster does not let host `{host}` join: {message} ({reason})")]
    Refused {
        /// The host name in the request.
        host: String,
        /// Message for operators, with the way out.
        message: String,
        /// Machine-readable reason.
        reason: String,
    },
    /// The key or the certificate cannot be created or stored.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
}

/// Whether a worker obtains its certificate by joining.
pub(crate) fn joins(config: &WorkerConfig) -> bool {
    let is_given = config.tls.certificate.is_some() || config.tls.key.is_some();
    let has_token = config.join_token_file.is_some() || env::var_os(JOIN_TOKEN_VARIABLE).is_some();
    has_token && !is_given
}

/// Returns the dialer for replicas: with the certificate in the settings, with one obtained by joining, or
/// without. Joining is retried until it succeeds or is refused permanently.
pub(crate) async fn dialer(
    config: &WorkerConfig,
    data: &Path,
    replicas: &KnownReplicas,
    host: &str,
) -> Result<Dialer, Error> {
    let role = PeerRole::Worker(host.to_owned());
    if !joins(config) {
        let tls = Tls::load_as(&config.tls, Some(role))?;
        tls.iter().for_each(Tls::keep_current);
        return Ok(Dialer::new(tls));
    }
    let identity = Identity::of(config, data);
    if !identity.is_valid(&role) {
        join(config, replicas, &identity, host).await?;
    }
    let tls = Tls::load_as(&identity.settings, Some(role))?;
    if let Some(tls) = &tls {
        tls.keep_current();
        keep_renewed(identity, replicas.clone(), tls.clone());
    }
    Ok(Dialer::new(tls))
}

/// Asks the replicas in turn until one grants the certificate.
async fn join(
    config: &WorkerConfig,
    replicas: &KnownReplicas,
    identity: &Identity,
    host: &str,
) -> Result<(), JoinError> {
    let token = token(config)?;
    let csr_pem = identity.signing_request()?;
    let asked = request::JoinRequest {
        // Constant for all attempts with this key, so that the token is used once even if this process dies
        // in between. Current replicas derive an id of their own from the same data.
        request_id: request_id(&token, identity)?,
        token,
        host: host.to_owned(),
        csr_pem,
    };
    let mut logged = String::new();
    loop {
        for address in &replicas.addresses() {
            let replica = Replica::new(address, identity.authorities.as_deref());
            let problem = match replica.join(&asked).await {
                Ok(joined) => {
                    identity.keep(&joined)?;
                    tracing::info!(
                        host,
                        address,
                        "this worker has joined, and has a certificate"
                    );
                    return Ok(());
                }
                Err(JoinFailure::Refused(status)) => {
                    let report = ErrorReport::of(&status);
                    if FINAL.contains(&report.reason.as_str()) {
                        return Err(JoinError::Refused {
                            host: host.to_owned(),
                            message: status.message().to_owned(),
                            reason: report.reason,
                        });
                    }
                    format!("{address}: {}", status.message())
                }
                Err(JoinFailure::NoAnswer(problem)) => format!("{address}: {problem}"),
            };
            if problem != logged {
                tracing::warn!(problem, "this worker has not joined yet; retrying");
                logged = problem;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Reads the join token from the file or the variable.
fn token(config: &WorkerConfig) -> Result<JoinToken, JoinError> {
    let missing = |problem: String| JoinError::NoToken { problem };
    let (text, from) = match &config.join_token_file {
        Some(path) => {
            let from = path.display().to_string();
            let read = std::fs::read_to_string(path);
            let text = read.map_err(|error| missing(format!("cannot read {from}: {error}")))?;
            (text, from)
        }
        None => {
            let text = env::var(JOIN_TOKEN_VARIABLE).unwrap_or_default();
            (text, JOIN_TOKEN_VARIABLE.to_owned())
        }
    };
    let token = JoinToken::new(&text);
    if token.id().is_none() {
        return Err(missing(format!("{from} holds no join token")));
    }
    Ok(token)
}

/// Derived from the token and the key: only the same worker has both.
fn request_id(token: &JoinToken, identity: &Identity) -> Result<String, JoinError> {
    let key = identity.key_mark()?;
    let mut id = [0; 16];
    for (at, byte) in token.hash().iter().chain(&key).enumerate() {
        id[at % 16] ^= byte;
    }
    Ok(RequestId(u128::from_be_bytes(id)).to_string())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    const TOKEN: &str = "muster-join:a1:\
        0000000000000000000000000000000000000000000000000000000000000000:\
        1111111111111111111111111111111111111111111111111111111111111111";

    #[test]
    fn a_token_is_read_and_an_invalid_one_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        let config = WorkerConfig {
            join_token_file: Some(file.clone()),
            ..WorkerConfig::default()
        };
        let problem = token(&config).unwrap_err().to_string();
        assert!(problem.contains("muster worker token create"), "{problem}");
        std::fs::write(&file, "muster:ada:00").unwrap();
        let problem = token(&config).unwrap_err().to_string();
        assert!(problem.contains("holds no join token"), "{problem}");
        std::fs::write(&file, format!("{TOKEN}\n")).unwrap();
        assert_eq!(token(&config).unwrap().id(), Some("a1"));
    }

    #[test]
    fn a_retry_with_the_same_key_has_the_same_request_id() {
        let folder = tempfile::tempdir().unwrap();
        let config = WorkerConfig::default();
        let one = Identity::of(&config, folder.path());
        let token = JoinToken::new(TOKEN);
        one.signing_request().unwrap();
        let first = request_id(&token, &one).unwrap();
        one.signing_request().unwrap();
        assert_eq!(request_id(&token, &one).unwrap(), first);
        let other = Identity::of(&config, &folder.path().join("other"));
        other.signing_request().unwrap();
        assert_ne!(request_id(&token, &other).unwrap(), first);
    }
}
