//! Records of the audit log.

use muster_proto::v1;

use crate::instant::Instant;

documents! {
    /// A call that asked for a change, and its answer.
    pub struct AuditRecord from v1::AuditRecord {
        time: Instant = time_ms,
        replica_id: u64,
        /// Number of the record in the log of its replica.
        sequence: u64,
        user: String,
        from: String,
        method: String,
        subject: String,
        /// The reason that the caller gave.
        why: String,
        dry_run: bool,
        request_id: String,
        code: String,
        /// Machine-readable reason of a refusal.
        reason: String,
        revision: Option<u64>,
    }
}

impl AuditRecord {
    /// Sort key: by time; records of one replica in their own order.
    #[must_use]
    pub fn order(&self) -> (u64, u64, u64) {
        (self.time.ms, self.replica_id, self.sequence)
    }
}
