//! Errors on the wire: a gRPC status with `google.rpc` details, and its decoding in a client.
//!
//! Every error has an `ErrorInfo` with a reason in `SCREAMING_SNAKE`, the domain [`DOMAIN`] and metadata;
//! invalid fields are listed in a `BadRequest`, and a `RetryInfo` says when a retry may help.

mod rejected;

use std::collections::BTreeMap;
use std::time::Duration;

use muster_model::ids::Revision;
use muster_model::rejection::Rejection;
use tonic::{Code, Status};
use tonic_types::{ErrorDetail, ErrorInfo, RetryInfo, StatusExt};

use crate::clip::clip;

pub use rejected::{rejected_to_wire, status_of};

/// `ErrorInfo.domain` of all our errors.
pub const DOMAIN: &str = "muster.dev";

/// Reason of a rejection by a replica that does not lead.
pub const NOT_LEADER: &str = "NOT_LEADER";
/// Reason of a rejected message between replicas that reached a replica of another cluster; nothing was
/// done.
pub const FOREIGN_CLUSTER: &str = "FOREIGN_CLUSTER";
/// Reason of a rejected message that reached another replica than the addressed one; nothing was done.
pub const WRONG_REPLICA: &str = "WRONG_REPLICA";
/// Metadata of a `NOT_YOURS`: admins are defined by the replicas' settings, because callers are not
/// authenticated.
pub const ADMINS_BY_SETTINGS: &str = "admins_by_settings";
/// Reason of a rejected watch whose start is compacted.
pub const COMPACTED: &str = "COMPACTED";
/// Metadata of [`NOT_LEADER`]: the leader's address.
pub const LEADER_KEY: &str = "leader";
/// Metadata of [`COMPACTED`]: the newest dropped revision.
pub const COMPACTED_KEY: &str = "compacted";

/// Wait before another replica may be tried after [`NOT_LEADER`] without a known leader: a fifth of a
/// failover.
const RETRY_ELECTION: Duration = Duration::from_millis(200);

// A status travels in HTTP/2 trailers, which clients limit to 16 KiB by default; text repeated from a
// request must leave room after percent and base64 encoding.

/// Longest status message in bytes; longer ones are truncated.
const MESSAGE_BYTES_MAX: usize = 1_024;
/// Longest metadata value, field path or rule in bytes; longer ones are truncated.
const VALUE_BYTES_MAX: usize = 256;
/// Most invalid fields listed; the metadata `violations` gives the total.
const VIOLATIONS_MAX: usize = 12;

/// Builds a status with its `ErrorInfo`.
#[must_use]
pub fn error(code: Code, reason: &str, message: &str, metadata: &[(&str, String)]) -> Status {
    with_details(code, message, [info(reason, metadata)].into())
}

/// Builds a status with its `ErrorInfo` and the wait before a retry.
#[must_use]
pub fn retryable(
    code: Code,
    reason: &str,
    message: &str,
    metadata: &[(&str, String)],
    after: Duration,
) -> Status {
    let retry = RetryInfo {
        retry_delay: Some(after),
    };
    let details = [info(reason, metadata), ErrorDetail::RetryInfo(retry)];
    with_details(code, message, details.into())
}

fn with_details(code: Code, message: &str, details: Vec<ErrorDetail>) -> Status {
    Status::with_error_details_vec(code, clip(message, MESSAGE_BYTES_MAX), details)
}

fn info(reason: &str, metadata: &[(&str, String)]) -> ErrorDetail {
    ErrorDetail::ErrorInfo(ErrorInfo {
        reason: reason.to_owned(),
        domain: DOMAIN.to_owned(),
        metadata: metadata
            .iter()
            .map(|(key, value)| ((*key).to_owned(), clip(value, VALUE_BYTES_MAX).into_owned()))
            .collect(),
    })
}

/// Error of a replica that does not lead; `leader` is the address of the leader, if known.
#[must_use]
pub fn not_leader(leader: Option<&str>) -> Status {
    let message = leader.map_or_else(
        || "this replica does not lead and knows no leader".to_owned(),
        |address| format!("this replica does not lead; {address} does"),
    );
    let metadata = leader.map(|address| (LEADER_KEY, address.to_owned()));
    retryable(
        Code::Unavailable,
        NOT_LEADER,
        &message,
        metadata.as_slice(),
        if leader.is_some() {
            Duration::ZERO
        } else {
            RETRY_ELECTION
        },
    )
}

/// Error of a watch whose events were dropped.
#[must_use]
pub fn compacted(newest_dropped: Revision) -> Status {
    error(
        Code::OutOfRange,
        COMPACTED,
        &format!(
            "events up to revision {newest_dropped} are compacted; list again and watch from there"
        ),
        &[(COMPACTED_KEY, newest_dropped.to_string())],
    )
}

/// Details of an error, decoded by a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorReport {
    /// `ErrorInfo.reason`; empty if the error is not one of ours.
    pub reason: String,
    /// `ErrorInfo.metadata`.
    pub metadata: BTreeMap<String, String>,
    /// Invalid fields with their rules.
    pub violations: Vec<(String, String)>,
    /// Wait before a retry, if a retry may help.
    pub retry_after: Option<Duration>,
}

impl ErrorReport {
    /// Decodes the details of a status; damaged or foreign ones count as absent.
    #[must_use]
    pub fn of(status: &Status) -> Self {
        let details = status.get_error_details();
        let info = details.error_info().filter(|info| info.domain == DOMAIN);
        let violations = details.bad_request().map_or_else(Vec::new, |request| {
            request
                .field_violations
                .iter()
                .map(|violation| (violation.field.clone(), violation.description.clone()))
                .collect()
        });
        let metadata = info.into_iter().flat_map(|info| &info.metadata);
        Self {
            reason: info.map_or_else(String::new, |info| info.reason.clone()),
            metadata: metadata
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect(),
            violations,
            retry_after: details.retry_info().and_then(|retry| retry.retry_delay),
        }
    }

    /// The leader's address, if the error is [`NOT_LEADER`] and contains it.
    #[must_use]
    pub fn leader(&self) -> Option<&str> {
        if self.reason != NOT_LEADER {
            return None;
        }
        self.metadata.get(LEADER_KEY).map(String::as_str)
    }
}

impl From<crate::field::InvalidField> for Status {
    fn from(invalid: crate::field::InvalidField) -> Self {
        status_of(&Rejection::from(invalid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_learns_the_leader_from_a_refusal() {
        let report = ErrorReport::of(&not_leader(Some("node2:7600")));
        assert_eq!(report.leader(), Some("node2:7600"));
        assert_eq!(report.retry_after, Some(Duration::ZERO));
        let report = ErrorReport::of(&not_leader(None));
        assert_eq!(report.leader(), None);
        assert_eq!(report.reason, NOT_LEADER);
        assert!(report.retry_after > Some(Duration::ZERO));
    }

    #[test]
    fn a_compacted_watch_learns_where_the_events_begin() {
        let status = compacted(Revision(7));
        assert_eq!(status.code(), Code::OutOfRange);
        let report = ErrorReport::of(&status);
        assert_eq!(
            report.metadata.get(COMPACTED_KEY).map(String::as_str),
            Some("7")
        );
    }

    #[test]
    fn a_foreign_error_has_no_reason() {
        let report = ErrorReport::of(&Status::internal("transport"));
        assert_eq!(report, ErrorReport::default());
    }
}
