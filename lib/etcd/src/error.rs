//! What goes wrong with etcd.

use std::time::Duration;

use muster_service::settings::BrokenRule;
use muster_tls::TlsError;
use tonic::Code;

use crate::connection::innermost;

/// Why etcd was not asked, or did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// A setting cannot work.
    #[error(transparent)]
    Settings(#[from] BrokenRule),
    /// The certificates cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The file with the password cannot be read.
    #[error("reading etcd's password from {path} failed")]
    Password {
        /// Which file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// No endpoint was reached, or the connection broke.
    #[error("etcd at {endpoint} is not reached: {reason}")]
    Unreachable {
        /// Who was asked last.
        endpoint: String,
        /// Why, for people.
        reason: String,
    },
    /// No answer in time.
    #[error("etcd at {endpoint} gave no answer within {} s", .within.as_secs_f64())]
    Silent {
        /// Who was asked.
        endpoint: String,
        /// How long.
        within: Duration,
    },
    /// etcd's database is full: it takes nothing more before it was compacted, defragmented and its alarm disarmed.
    #[error("etcd at {endpoint} is full (alarm NOSPACE)")]
    Full {
        /// Who said so.
        endpoint: String,
    },
    /// etcd knows the user not, or does not let it do this.
    #[error("etcd at {endpoint} refuses: {reason}")]
    Denied {
        /// Who said so.
        endpoint: String,
        /// Why, in its words.
        reason: String,
    },
    /// The lease is over, and the keys under it are gone.
    #[error("the lease in etcd is over")]
    LeaseOver,
    /// A newer leader has written; what this one says counts no more.
    #[error("a leader with a newer epoch than {epoch} writes to etcd")]
    Superseded {
        /// The epoch of this leader.
        epoch: u64,
    },
    /// Anything else.
    #[error("etcd at {endpoint} failed: {reason}")]
    Failed {
        /// Who said so.
        endpoint: String,
        /// Why, in its words.
        reason: String,
    },
}

impl EtcdError {
    /// One word, of a fixed set: the label `kind` of the metric.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Settings(_) | Self::Tls(_) | Self::Password { .. } => "settings",
            Self::Unreachable { .. } => "unreachable",
            Self::Silent { .. } => "silent",
            Self::Full { .. } => "full",
            Self::Denied { .. } => "denied",
            Self::LeaseOver => "lease_over",
            Self::Superseded { .. } => "superseded",
            Self::Failed { .. } => "failed",
        }
    }

    /// What it means that a call to `endpoint` failed so.
    pub(crate) fn answered(endpoint: &str, error: &etcd_client::Error) -> Self {
        let endpoint = endpoint.to_owned();
        let status = match error {
            etcd_client::Error::GRpcStatus(status) => status,
            // In words alone: the lease was not found.
            etcd_client::Error::LeaseKeepAliveError(_) => return Self::LeaseOver,
            etcd_client::Error::TransportError(error) => {
                let reason = innermost(error);
                return Self::Unreachable { endpoint, reason };
            }
            other => {
                let reason = other.to_string();
                return Self::Failed { endpoint, reason };
            }
        };
        // Of what did not come from etcd, the message says no more than that something failed.
        let source = std::error::Error::source(status);
        let reason = source.map_or_else(|| status.message().to_owned(), innermost);
        match status.code() {
            Code::ResourceExhausted if reason.contains("space exceeded") => Self::Full { endpoint },
            Code::Unauthenticated | Code::PermissionDenied => Self::Denied { endpoint, reason },
            Code::InvalidArgument | Code::FailedPrecondition if is_about_users(&reason) => {
                Self::Denied { endpoint, reason }
            }
            Code::NotFound if reason.contains("lease") => Self::LeaseOver,
            Code::Unavailable | Code::Cancelled | Code::Unknown => {
                Self::Unreachable { endpoint, reason }
            }
            _ => Self::Failed { endpoint, reason },
        }
    }

    /// Whether another endpoint may do better.
    pub(crate) fn is_of_endpoint(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Failed { .. }
        )
    }
}

/// etcd has no code of its own for them.
fn is_about_users(reason: &str) -> bool {
    ["authentication", "user name", "invalid auth token"]
        .iter()
        .any(|word| reason.contains(word))
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    /// In the words of etcd 3.4.
    #[test]
    fn what_etcd_says_is_told_apart() {
        for (code, words, kind) in [
            (
                Code::ResourceExhausted,
                "etcdserver: mvcc: database space exceeded",
                "full",
            ),
            (
                Code::ResourceExhausted,
                "etcdserver: too many requests",
                "failed",
            ),
            (
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
                "denied",
            ),
            (
                Code::InvalidArgument,
                "etcdserver: user name is empty",
                "denied",
            ),
            (
                Code::Unauthenticated,
                "etcdserver: invalid auth token",
                "denied",
            ),
            (
                Code::PermissionDenied,
                "etcdserver: permission denied",
                "denied",
            ),
            (
                Code::NotFound,
                "etcdserver: requested lease not found",
                "lease_over",
            ),
            (Code::Unavailable, "etcdserver: no leader", "unreachable"),
        ] {
            let error = EtcdError::answered("a:2379", &Status::new(code, words).into());
            assert_eq!(error.kind(), kind, "{words}");
        }
    }
}
