//! Record of one call in the audit log.

use std::net::SocketAddr;

use muster_proto::status::ErrorReport;
use muster_proto::v1;
use serde::{Deserialize, Serialize};
use tonic::{Code, Status};

/// Bytes kept of one text chosen by the caller, so that a line stays short.
const TEXT_BYTES_MAX: usize = 256;

/// A call that asked for a change, and its answer. Contains no commands, environments or specifications of
/// tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Record {
    /// Number of the record on this replica, from 1.
    pub(crate) sequence: u64,
    /// Time of the answer in milliseconds since the Unix epoch.
    pub(crate) time_ms: u64,
    /// The replica that answered.
    pub(crate) replica: u64,
    /// The authenticated user; without authentication the name given in the call, which may be empty.
    pub(crate) user: String,
    /// The caller's address.
    pub(crate) from: String,
    /// Name of the method.
    pub(crate) method: String,
    /// Subject of the call: `job 7`, `host node01`, `queue research`.
    pub(crate) subject: String,
    /// Reason given by the caller.
    pub(crate) why: String,
    /// Whether the call was a dry run.
    pub(crate) dry_run: bool,
    /// Idempotency key; empty if there is none.
    pub(crate) request_id: String,
    /// Status code of the answer: `Ok`, an error code, or `Cancelled` if the caller left before the answer.
    pub(crate) code: String,
    /// Machine-readable reason of an error.
    pub(crate) reason: String,
    /// Revision at which the change took effect; 0 if it has none.
    pub(crate) revision: u64,
}

impl Record {
    /// What a write request says about itself. An empty `request_id` means that it has none.
    pub(crate) fn about(request_id: &str, subject: String) -> Self {
        Self {
            subject,
            request_id: request_id.to_owned(),
            ..Self::default()
        }
    }

    /// Adds who called which method, and truncates what the caller chose.
    pub(crate) fn called(self, method: &str, user: &str, from: Option<SocketAddr>) -> Self {
        Self {
            subject: short(&self.subject),
            why: short(&self.why),
            request_id: short(&self.request_id),
            dry_run: self.dry_run,
            ..Self::of_call(method, user, String::new(), from)
        }
    }

    /// Adds the revision at which the change took effect.
    pub(crate) fn at_revision(self, revision: u64) -> Self {
        Self { revision, ..self }
    }

    /// Adds the answer: refused or allowed.
    pub(crate) fn answered_with(mut self, refusal: Option<&Status>) -> Self {
        self.code = format!("{:?}", refusal.map_or(Code::Ok, Status::code));
        self.reason = refusal.map_or_else(String::new, |status| ErrorReport::of(status).reason);
        self
    }

    /// Record of a call that is no write, as described by its request.
    pub(crate) fn of_call(
        method: &str,
        user: &str,
        subject: String,
        from: Option<SocketAddr>,
    ) -> Self {
        Self {
            user: short(user),
            from: from.map_or_else(String::new, |from| from.to_string()),
            method: method.to_owned(),
            subject: short(&subject),
            ..Self::default()
        }
    }
}

/// Truncates a text to the limit.
fn short(text: &str) -> String {
    text[..text.floor_char_boundary(TEXT_BYTES_MAX)].to_owned()
}

impl From<Record> for v1::AuditRecord {
    fn from(record: Record) -> Self {
        Self {
            sequence: record.sequence,
            time_ms: record.time_ms,
            replica_id: record.replica,
            user: record.user,
            from: record.from,
            method: record.method,
            subject: record.subject,
            why: record.why,
            dry_run: record.dry_run,
            request_id: record.request_id,
            code: record.code,
            reason: record.reason,
            revision: record.revision,
        }
    }
}
