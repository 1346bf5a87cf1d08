//! How a worker without a certificate comes by one and keeps it: by a join token, and then by the certificate itself.
//!
//! The worker makes its own key, which never leaves the host. Before it shows its token it makes sure of the cluster: by
//! `tls.ca`, or by the hash of the cluster's authorities that stands in the token.

mod ask;
mod identity;
mod renewal;

use std::env;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ask::{Failed, Replica};
use identity::Identity;
use muster_model::ids::RequestId;
use muster_proto::status::ErrorReport;
use muster_tls::issue::IssueError;
use muster_tls::{Dialer, JoinToken, PeerRole, Tls};
use renewal::keep_renewed;

use crate::config::WorkerConfig;
use crate::error::Error;
use crate::replicas::KnownReplicas;

/// The variable that holds the join token itself.
pub(crate) const JOIN_TOKEN_VARIABLE: &str = "MUSTER_JOIN_TOKEN";
/// Pause before all replicas are asked again.
const PAUSE: Duration = Duration::from_secs(2);
/// Refusals that no replica and no later time make good.
const FINAL: [&str; 6] = [
    "BAD_JOIN_TOKEN",
    "JOIN_TOKEN_SPENT",
    "JOIN_TOKEN_OF_OTHERS",
    "INVALID_REQUEST",
    "REQUEST_REUSED",
    "BAD_CSR",
];

/// Why a worker could not join.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// There is no certificate, or none that holds, and nothing to join by.
    #[error(
        "this worker has no certificate that holds, and no join token: {problem}. An admin makes one by `muster worker token create`; \
         its file is named by `join_token_file`, or the token is in MUSTER_JOIN_TOKEN"
    )]
    NoToken {
        /// What is wrong with the file or the variable.
        problem: String,
    },
    /// The cluster refuses.
    #[error("the cluster does not let host `{host}` join: {message} ({reason})")]
    Refused {
        /// Under which name.
        host: String,
        /// Why, for people, with the way out.
        message: String,
        /// Why, for programs.
        reason: String,
    },
    /// The key or the certificate cannot be made or kept.
    #[error(transparent)]
    Issue(#[from] IssueError),
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Whether a worker comes by its certificate itself.
pub(crate) fn joins(config: &WorkerConfig) -> bool {
    let is_given = config.tls.certificate.is_some() || config.tls.key.is_some();
    let has_token = config.join_token_file.is_some() || env::var_os(JOIN_TOKEN_VARIABLE).is_some();
    has_token && !is_given
}

/// How this host reaches replicas: with the certificate that the settings name, with one that it joins for if it has none yet, or
/// with none. Joining is tried until it is done, or refused for good.
pub(crate) async fn dialer(
    config: &WorkerConfig,
    (data, replicas): (&Path, &KnownReplicas),
    host: &str,
) -> Result<Dialer, Error> {
    let role = PeerRole::Worker(host.to_owned());
    if !joins(config) {
        let tls = Tls::load_as(&config.tls, Some(role))?;
        tls.iter().for_each(Tls::keep_current);
        return Ok(Dialer::new(tls));
    }
    let identity = Identity::of(config, data);
    if !identity.holds(&role) {
        join((config, replicas), &identity, host).await?;
    }
    let tls = Tls::load_as(&identity.settings, Some(role))?;
    if let Some(tls) = &tls {
        tls.keep_current();
        keep_renewed(identity, replicas.clone(), tls.clone());
    }
    Ok(Dialer::new(tls))
}

/// Asks one replica after the other, again and again.
async fn join(
    (config, replicas): (&WorkerConfig, &KnownReplicas),
    identity: &Identity,
    host: &str,
) -> Result<(), JoinError> {
    let token = token(config)?;
    let csr_pem = identity.signing_request()?;
    let asked = ask::Join {
        // The same for every try with this key: the token is used once, also if this process dies in between. Replicas of today make
        // one of their own, of the same.
        request_id: request_id(&token, identity)?,
        token,
        host: host.to_owned(),
        csr_pem,
    };
    let mut told = String::new();
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
                Err(Failed::Refused(status)) => {
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
                Err(Failed::Unsaid(problem)) => format!("{address}: {problem}"),
            };
            if problem != told {
                tracing::warn!(problem, "this worker has not joined yet, and tries again");
                told = problem;
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// The join token, of the file or the variable.
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

/// Of the token and the key: who has both is whoever asked before.
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
    fn a_token_is_read_and_what_is_none_is_told() {
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
    fn who_tries_again_with_its_key_is_the_same() {
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
