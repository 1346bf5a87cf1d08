//! Errors of calls. Every error contains the attempted operation, the cause and the way out.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_model::ids::Revision;
use muster_model::spec::Violation;
use muster_proto::status::ErrorReport;
use muster_tls::TlsMismatch;
use tonic::{Code, Status};

/// Error of a failed call.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// The settings of the client are invalid.
    #[error("the client's setting `{field}` is not usable: {rule}")]
    Config {
        /// The setting.
        field: &'static str,
        /// The requirement.
        rule: String,
    },
    /// etcd lists no replica, and none was given.
    #[error("cannot find the cluster through etcd: {reason}")]
    NotFound {
        /// Cause, for operators.
        reason: String,
    },
    /// No replica could be reached at all.
    #[error("cannot {operation}: no scheduler replica is reachable ({})", list(.tried))]
    Unreachable {
        /// The attempted operation.
        operation: &'static str,
        /// Every address with its failure.
        tried: Vec<FailedAttempt>,
    },
    /// Replicas were reached, but no attempt succeeded in time.
    #[error("cannot {operation}: no answer within {} s ({})", seconds(.deadline), list(.tried))]
    DeadlineExceeded {
        /// The attempted operation.
        operation: &'static str,
        /// Total time of the attempts.
        deadline: Duration,
        /// Every address with its last failure.
        tried: Vec<FailedAttempt>,
    },
    /// The cluster understood the request and rejects it.
    #[error("cannot {operation}: {refusal}")]
    Refused {
        /// The attempted operation.
        operation: &'static str,
        /// The cluster's answer.
        #[source]
        refusal: Box<Refusal>,
    },
    /// The requested events are gone: list again and watch from the list's revision.
    #[error(
        "events up to revision {compacted} are forgotten, {asked} was asked for: list again, and watch from \
         the list's revision"
    )]
    Compacted {
        /// The resume token used.
        asked: Revision,
        /// Newest forgotten revision.
        compacted: Revision,
    },
    /// A past revision was requested, and the answer shows another: the replica's build does not support
    /// past revisions.
    #[error(
        "cannot {operation} at revision {asked}: the replica that answered shows revision {shown}; its version is \
         too old for past revisions"
    )]
    OtherRevision {
        /// The attempted operation.
        operation: &'static str,
        /// Requested revision.
        asked: Revision,
        /// Revision of the answer.
        shown: Revision,
    },
    /// The answer lacks something or contradicts the contract: client and cluster differ in version.
    #[error("cannot {operation}: the answer is not understood, {detail}; is the cluster newer?")]
    Malformed {
        /// The attempted operation.
        operation: &'static str,
        /// Problem of the answer.
        detail: String,
    },
}

impl ClientError {
    /// The machine-readable reason (`UNKNOWN_JOB`), if the cluster gave one.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Refused { refusal, .. } => Some(&refusal.reason),
            _ => None,
        }
    }

    /// Whether the cluster does not know the request at all, because its version is older.
    #[must_use]
    pub fn is_unknown_request(&self) -> bool {
        self.refusal()
            .is_some_and(|refusal| refusal.code == Code::Unimplemented)
    }

    /// The TLS mismatch, if that is why no replica is reachable.
    #[must_use]
    pub fn tls_mismatch(&self) -> Option<TlsMismatch> {
        match self {
            Self::Unreachable { tried, .. } => tried.iter().find_map(|it| it.mismatch),
            _ => None,
        }
    }

    /// The cluster's refusal, if it was one.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused { refusal, .. } => Some(refusal),
            _ => None,
        }
    }
}

/// A failed attempt at one address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address}: {cause}")]
pub struct FailedAttempt {
    /// The replica's address.
    pub address: String,
    /// Cause of the failure.
    pub cause: String,
    /// Whether the replica itself reported it; false if it was unreachable, the connection broke, or it did
    /// not answer in time.
    pub is_answer: bool,
    /// The TLS mismatch, if that is the cause: no other attempt helps until one side is reconfigured.
    pub mismatch: Option<TlsMismatch>,
}

impl FailedAttempt {
    /// A replica without an answer, for a cause other than TLS.
    pub(crate) const fn new(address: String, cause: String) -> Self {
        Self {
            address,
            cause,
            is_answer: false,
            mismatch: None,
        }
    }
}

/// An error as returned by the cluster.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// gRPC status code.
    pub code: Code,
    /// Machine-readable reason (`QUEUE_FULL`); the code's name if the cluster gave none.
    pub reason: String,
    /// For users: the problem and its remedy.
    pub message: String,
    /// Details, as documented by the service.
    pub metadata: BTreeMap<String, String>,
    /// Violated rules of a request, with the field of each.
    pub violations: Vec<Violation>,
    /// Wait requested by the cluster before another attempt.
    pub retry_after: Option<Duration>,
}

impl From<&Status> for Refusal {
    fn from(status: &Status) -> Self {
        let report = ErrorReport::of(status);
        let violations = report.violations.into_iter();
        Self {
            code: status.code(),
            reason: if report.reason.is_empty() {
                format!("{:?}", status.code())
            } else {
                report.reason
            },
            message: status.message().to_owned(),
            metadata: report.metadata,
            violations: violations
                .map(|(field, rule)| Violation { field, rule })
                .collect(),
            retry_after: report.retry_after,
        }
    }
}

fn list(tried: &[FailedAttempt]) -> String {
    if tried.is_empty() {
        return "nothing was tried".to_owned();
    }
    let texts: Vec<String> = tried.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

/// Seconds rounded to a hundredth, for display: the rest of a deadline is not a round number.
pub(crate) fn seconds(span: &Duration) -> f64 {
    (span.as_secs_f64() * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_to_a_hundredth() {
        let rounded = |micros| seconds(&Duration::from_micros(micros)).to_string();
        assert_eq!(rounded(2_000_000), "2");
        assert_eq!(rounded(500_000), "0.5");
        assert_eq!(rounded(1_734_567), "1.73");
    }
}
