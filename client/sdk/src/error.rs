//! What a call can fail with. Every error says what was attempted, why it failed and what to do.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_model::ids::Revision;
use muster_model::spec::Violation;
use muster_proto::status::ErrorReport;
use muster_tls::TlsMismatch;
use tonic::{Code, Status};

/// Why a call failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// The settings of the client cannot work.
    #[error("the client's setting `{field}` is not usable: {rule}")]
    Config {
        /// Which one.
        field: &'static str,
        /// What it must be.
        rule: String,
    },
    /// etcd names no replica, and none was given.
    #[error("etcd does not tell where the cluster is: {reason}")]
    NotFound {
        /// Why, for people.
        reason: String,
    },
    /// No replica could be reached at all.
    #[error("cannot {operation}: no scheduler replica is reachable ({})", list(.tried))]
    Unreachable {
        /// What was attempted.
        operation: &'static str,
        /// Every address and what went wrong there.
        tried: Vec<FailedTry>,
    },
    /// Replicas were reached, but none answered well in time.
    #[error("cannot {operation}: no answer within {} s ({})", seconds(.deadline), list(.tried))]
    DeadlineExceeded {
        /// What was attempted.
        operation: &'static str,
        /// How long it was tried.
        deadline: Duration,
        /// Every address and what went wrong there last.
        tried: Vec<FailedTry>,
    },
    /// The cluster understood the request and refuses it.
    #[error("cannot {operation}: {refusal}")]
    Refused {
        /// What was attempted.
        operation: &'static str,
        /// The cluster's answer.
        #[source]
        refusal: Box<Refusal>,
    },
    /// The events asked for are gone: list again and watch from the list's revision.
    #[error(
        "events up to revision {compacted} are forgotten, {asked} was asked for: list again, and watch from the list's revision"
    )]
    Compacted {
        /// The resume token that was used.
        asked: Revision,
        /// Newest revision that is forgotten.
        compacted: Revision,
    },
    /// The past was asked for, and the answer shows another revision: the replica is of a build that does not know the question.
    #[error(
        "cannot {operation} at revision {asked}: the replica that answered shows revision {shown}, it is too old to show the past"
    )]
    OtherRevision {
        /// What was attempted.
        operation: &'static str,
        /// The revision that was asked for.
        asked: Revision,
        /// The revision that the answer shows.
        shown: Revision,
    },
    /// The answer lacks something or contradicts the contract: client and cluster differ in version.
    #[error("cannot {operation}: the answer is not understood, {detail}; is the cluster newer?")]
    Malformed {
        /// What was attempted.
        operation: &'static str,
        /// What is wrong with the answer.
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

    /// What keeps client and replicas apart over TLS, if that is why none is reachable.
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

/// One address that did not help, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address}: {cause}")]
pub struct FailedTry {
    /// The replica's address.
    pub address: String,
    /// What went wrong there.
    pub cause: String,
    /// Whether the replica itself said so: not, if it could not be reached, the connection broke, or it said nothing in time.
    pub is_answer: bool,
    /// What keeps the two apart over TLS, if that is the cause: no other try helps until one of them is set up anew.
    pub mismatch: Option<TlsMismatch>,
}

impl FailedTry {
    /// A replica that said nothing, for a cause that has nothing to do with TLS.
    pub(crate) const fn new(address: String, cause: String) -> Self {
        Self {
            address,
            cause,
            is_answer: false,
            mismatch: None,
        }
    }
}

/// An error as the cluster sent it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// gRPC status code.
    pub code: Code,
    /// Machine-readable reason (`QUEUE_FULL`); the code's name if the cluster gave none.
    pub reason: String,
    /// For people: what is wrong and what to do.
    pub message: String,
    /// Facts about it, as the service documents them.
    pub metadata: BTreeMap<String, String>,
    /// Broken rules of a request, with the field of each.
    pub violations: Vec<Violation>,
    /// How long the cluster asks to wait before another try.
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

fn list(tried: &[FailedTry]) -> String {
    if tried.is_empty() {
        return "nothing was tried".to_owned();
    }
    let texts: Vec<String> = tried.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

/// Seconds for people, to a hundredth: what was left of a deadline is no round number.
pub(crate) fn seconds(span: &Duration) -> f64 {
    (span.as_secs_f64() * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_as_exact_as_people_want_them() {
        let told = |micros| seconds(&Duration::from_micros(micros)).to_string();
        assert_eq!(told(2_000_000), "2");
        assert_eq!(told(500_000), "0.5");
        assert_eq!(told(1_734_567), "1.73");
    }
}
