//! Errors of etcd.

use std::time::Duration;

use muster_tls::TlsError;
use tonic::Code;

use crate::connection::innermost;
use crate::settings::InvalidSetting;

/// Error of a call to etcd that was not made or failed.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// A setting is invalid.
    #[error(transparent)]
    Settings(#[from] InvalidSetting),
    /// The certificates are unusable.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The password file cannot be read.
    #[error("reading etcd's password from {path} failed")]
    Password {
        /// Path of the file.
        path: String,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// No endpoint was reached, or the connection broke.
    #[error("etcd at {endpoint} is unreachable: {reason}")]
    Unreachable {
        /// The last endpoint tried.
        endpoint: String,
        /// Cause, for operators.
        reason: String,
    },
    /// No answer in time.
    #[error("etcd at {endpoint} gave no answer within {} s", .within.as_secs_f64())]
    TimedOut {
        /// The endpoint.
        endpoint: String,
        /// The timeout.
        within: Duration,
    },
    /// etcd's database is full: it rejects writes until it is compacted, defragmented and its alarm
    /// disarmed.
    #[error("etcd at {endpoint} is full (alarm NOSPACE)")]
    Full {
        /// The endpoint.
        endpoint: String,
    },
    /// The user is unknown to etcd or lacks permission.
    #[error("etcd at {endpoint} refuses: {reason}")]
    Denied {
        /// The endpoint.
        endpoint: String,
        /// Reason given by etcd.
        reason: String,
    },
    /// The lease has expired, and the keys under it are gone.
    #[error("the lease in etcd has expired")]
    LeaseOver,
    /// A newer leader has written; this leader's writes are rejected.
    #[error("a leader with a newer epoch than {epoch} writes to etcd")]
    Superseded {
        /// Epoch of this leader.
        epoch: u64,
    },
    /// Any other failure.
    #[error("etcd at {endpoint} failed: {reason}")]
    Failed {
        /// The endpoint.
        endpoint: String,
        /// Reason given by etcd.
        reason: String,
    },
}

impl EtcdError {
    /// One word of a fixed set: the label `kind` of the metric.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Settings(_) | Self::Tls(_) | Self::Password { .. } => "settings",
            Self::Unreachable { .. } => "unreachable",
            Self::TimedOut { .. } => "silent",
            Self::Full { .. } => "full",
            Self::Denied { .. } => "denied",
            Self::LeaseOver => "lease_over",
            Self::Superseded { .. } => "superseded",
            Self::Failed { .. } => "failed",
        }
    }

    /// Converts an error of a call to `endpoint`.
    pub(crate) fn from_call(endpoint: &str, error: &etcd_client::Error) -> Self {
        let endpoint = endpoint.to_owned();
        let status = match error {
            etcd_client::Error::GRpcStatus(status) => status,
            // This error has no code of its own, only a text: the lease was not found.
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
        // For an error that did not come from etcd, the message says only that something failed.
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

    /// Whether another endpoint may succeed.
    pub(crate) fn is_of_endpoint(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::TimedOut { .. } | Self::Failed { .. }
        )
    }
}

/// etcd has no separate code for errors about users.
fn is_about_users(reason: &str) -> bool {
    ["authentication", "user name", "invalid auth token"]
        .iter()
        .any(|word| reason.contains(word))
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    /// Messages of etcd 3.4.
    #[test]
    fn errors_of_etcd_are_classified() {
        for (code, message, kind) in [
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
            let error = EtcdError::from_call("a:2379", &Status::new(code, message).into());
            assert_eq!(error.kind(), kind, "{message}");
        }
    }
}
