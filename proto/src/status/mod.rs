//! Errors on the wire: a gRPC status with `google.rpc` details, and how a client reads them back.
//!
//! Every error has an `ErrorInfo` with a reason in `SCREAMING_SNAKE`, the domain [`DOMAIN`] and metadata;
//! broken fields are listed in a `BadRequest`, and a `RetryInfo` says when trying again may help.

mod rejected;

use std::collections::BTreeMap;
use std::time::Duration;

use muster_model::ids::Revision;
use muster_model::rejection::Rejection;
use tonic::{Code, Status};
use tonic_types::{ErrorDetail, ErrorInfo, RetryInfo, StatusExt};

use crate::clip::clip;

pub use rejected::{rejected_to_wire, status_of};

/// `ErrorInfo.domain` of every error of ours.
pub const DOMAIN: &str = "muster.dev";

/// Reason of a refusal by a replica that does not lead.
pub const NOT_LEADER: &str = "NOT_LEADER";
/// Reason of a refusal by a replica of another cluster, to which a message between replicas came; nothing was done.
pub const FOREIGN_CLUSTER: &str = "FOREIGN_CLUSTER";
/// Reason of a refusal by another replica than the one that a message was meant for; nothing was done.
pub const WRONG_REPLICA: &str = "WRONG_REPLICA";
/// Metadata of a `NOT_YOURS`: who is an admin is what the replicas' settings say, because nobody has to prove who they are.
pub const ADMINS_BY_SETTINGS: &str = "admins_by_settings";
/// Reason of a watch whose start is compacted.
pub const COMPACTED: &str = "COMPACTED";
/// Metadata of [`NOT_LEADER`]: the leader's address.
pub const LEADER_KEY: &str = "leader";
/// Metadata of [`COMPACTED`]: the newest dropped revision.
pub const COMPACTED_KEY: &str = "compacted";

/// When a client may try another replica after [`NOT_LEADER`] without a known leader: a fifth of a
/// failover.
const RETRY_ELECTION: Duration = Duration::from_millis(200);

// A status travels in HTTP/2 trailers, of which clients take 16 KiB by default; what it repeats from a
// request must leave room after percent and base64 encoding.

/// Bytes of a status message at most; longer ones are cut.
const MESSAGE_BYTES_MAX: usize = 1_024;
/// Bytes of a metadata value, a field's path or a rule at most; longer ones are cut.
const VALUE_BYTES_MAX: usize = 256;
/// Broken fields listed at most; the metadata `violations` tells how many there are.
const VIOLATIONS_MAX: usize = 12;

/// A status with its `ErrorInfo`.
#[must_use]
pub fn error(code: Code, reason: &str, message: &str, metadata: &[(&str, String)]) -> Status {
    with_details(code, message, [info(reason, metadata)].into())
}

/// A status with its `ErrorInfo` that says when trying again may help.
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

/// This replica does not lead; `leader` is the address of the one that does, if it is known.
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

/// The events that a watch asks for were dropped.
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

/// What an error says about itself, read by a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorReport {
    /// `ErrorInfo.reason`; empty if the error is not one of ours.
    pub reason: String,
    /// `ErrorInfo.metadata`.
    pub metadata: BTreeMap<String, String>,
    /// Broken fields with their rules.
    pub violations: Vec<(String, String)>,
    /// When trying again may help, if it may.
    pub retry_after: Option<Duration>,
}

impl ErrorReport {
    /// Reads the details of a status; those that are damaged or foreign count as absent.
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

    /// The leader's address, if the error is [`NOT_LEADER`] and tells it.
    #[must_use]
    pub fn leader(&self) -> Option<&str> {
        if self.reason != NOT_LEADER {
            return None;
        }
        self.metadata.get(LEADER_KEY).map(String::as_str)
    }
}

impl From<crate::convert::InvalidField> for Status {
    fn from(invalid: crate::convert::InvalidField) -> Self {
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
