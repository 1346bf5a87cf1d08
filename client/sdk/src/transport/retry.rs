//! Retry policy: classification of failures.

use std::error::Error;
use std::time::Duration;

use muster_proto::status::{LEADER_KEY, NOT_LEADER};
use tonic::{Code, Status};

use crate::error::Refusal;

/// Reason of a log request for a host that does not answer: the cluster itself is healthy.
pub(crate) const HOST_UNREACHABLE: &str = "HOST_UNREACHABLE";
/// Reason of a watch that could not keep up: it resumes at its position.
pub(crate) const WATCH_TOO_SLOW: &str = "WATCH_TOO_SLOW";
/// Reasons of temporary refusals: nothing was done. See
/// [`ClientConfig::retries_temporary_refusals`](crate::ClientConfig::retries_temporary_refusals).
const TEMPORARY_REFUSALS: [&str; 3] = ["QUEUE_FULL", "CLUSTER_FULL", "REPLICA_UNREACHABLE"];

/// Consequence of a failed attempt for the call.
#[derive(Debug)]
pub(crate) enum FailureClass {
    /// No other attempt would help.
    Final(Box<Refusal>),
    /// Another replica leads.
    Redirect {
        /// Its address.
        leader: String,
    },
    /// The same call may succeed elsewhere, or later.
    Again {
        /// Cause, for operators.
        cause: String,
        /// Whether the connection itself is broken.
        transport: bool,
        /// Wait requested by the cluster.
        retry_after: Option<Duration>,
    },
}

/// Classifies the status of a failed attempt.
///
/// Repeating is safe whatever the status, because writes carry a request id; the question is only whether
/// it could help.
pub(crate) fn classify(status: &Status) -> FailureClass {
    let transport = status.source().is_some();
    let refusal = Refusal::from(status);
    let leader = refusal.metadata.get(LEADER_KEY);
    if refusal.reason == NOT_LEADER
        && let Some(leader) = leader.filter(|leader| !leader.is_empty())
    {
        return FailureClass::Redirect {
            leader: leader.clone(),
        };
    }
    let is_temporary = match refusal.code {
        Code::Unavailable => refusal.reason != HOST_UNREACHABLE,
        Code::DeadlineExceeded | Code::Aborted | Code::Cancelled => true,
        Code::ResourceExhausted => {
            refusal.retry_after.is_some() || refusal.reason == WATCH_TOO_SLOW
        }
        _ => transport,
    };
    if !is_temporary {
        return FailureClass::Final(Box::new(refusal));
    }
    // An election takes a fraction of a second: our own short waits fit it better.
    let electing = refusal.reason == NOT_LEADER;
    FailureClass::Again {
        cause: cause_of(status),
        transport,
        retry_after: refusal.retry_after.filter(|_| !electing),
    }
}

/// The refusal, if it is temporary.
pub(crate) fn temporary_refusal(status: &Status) -> Option<Box<Refusal>> {
    let refusal = Refusal::from(status);
    let is_temporary = TEMPORARY_REFUSALS.contains(&&*refusal.reason);
    is_temporary.then(|| Box::new(refusal))
}

/// The innermost cause of an error, the most recognisable one.
pub(crate) fn innermost(error: &(dyn Error + 'static)) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

fn cause_of(status: &Status) -> String {
    status.source().map_or_else(
        || status.message().to_owned(),
        |source| format!("connection lost: {}", innermost(source)),
    )
}

#[cfg(test)]
mod tests {
    use muster_proto::status::{error, not_leader};

    use super::*;

    fn status(code: Code, reason: &str) -> Status {
        error(code, reason, "a message", &[])
    }

    #[test]
    fn a_redirect_names_the_leader() {
        let verdict = classify(&not_leader(Some("b:2")));
        assert!(matches!(verdict, FailureClass::Redirect { leader } if leader == "b:2"));
    }

    #[test]
    fn calls_wait_for_an_election() {
        for leader in [None, Some("")] {
            let verdict = classify(&not_leader(leader));
            assert!(matches!(
                verdict,
                FailureClass::Again {
                    transport: false,
                    retry_after: None,
                    ..
                }
            ));
        }
    }

    #[test]
    fn a_refusal_is_final() {
        for (code, reason) in [
            (Code::NotFound, "UNKNOWN_JOB"),
            (Code::InvalidArgument, "INVALID_SPEC"),
            (Code::ResourceExhausted, "QUEUE_FULL"),
            (Code::Unavailable, HOST_UNREACHABLE),
        ] {
            let verdict = classify(&status(code, reason));
            assert!(
                matches!(&verdict, FailureClass::Final(refusal) if refusal.reason == reason),
                "{verdict:?}"
            );
        }
    }

    #[test]
    fn only_temporary_refusals_can_be_waited_out() {
        let is_temporary = |code, reason| temporary_refusal(&status(code, reason)).is_some();
        assert!(is_temporary(Code::ResourceExhausted, "CLUSTER_FULL"));
        assert!(is_temporary(Code::Unavailable, "REPLICA_UNREACHABLE"));
        // For these the outcome is unknown, or they are handled elsewhere.
        assert!(!is_temporary(Code::Unavailable, "UNKNOWN_OUTCOME"));
        assert!(!is_temporary(Code::Unavailable, "NOT_LEADER"));
    }
}
