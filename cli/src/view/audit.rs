//! A record of the audit log.

use jiff::Timestamp;
use muster_proto::v1;
use serde::Serialize;

use crate::output::{Cell, Column, Row, Tone, instant};

/// A call that asked for a change, and its answer.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct AuditView {
    time: String,
    #[serde(skip)]
    time_ms: u64,
    replica_id: u64,
    sequence: u64,
    user: String,
    from: String,
    method: String,
    subject: String,
    why: String,
    dry_run: bool,
    request_id: String,
    code: String,
    reason: String,
    revision: Option<u64>,
}

impl AuditView {
    /// Sort key: by time; records of one replica in their own order.
    pub(crate) fn order(&self) -> (u64, u64, u64) {
        (self.time_ms, self.replica_id, self.sequence)
    }
}

impl From<v1::AuditRecord> for AuditView {
    fn from(record: v1::AuditRecord) -> Self {
        Self {
            time: instant(record.time_ms),
            time_ms: record.time_ms,
            replica_id: record.replica_id,
            sequence: record.sequence,
            user: record.user,
            from: record.from,
            method: record.method,
            subject: record.subject,
            why: record.why,
            dry_run: record.dry_run,
            request_id: record.request_id,
            code: record.code,
            reason: record.reason,
            revision: Some(record.revision).filter(|revision| *revision > 0),
        }
    }
}

impl Row for AuditView {
    const COLUMNS: &'static [Column] = &[
        Column::new("TIME"),
        Column::new("USER"),
        Column::new("FROM"),
        Column::new("CALL"),
        Column::new("WHAT"),
        Column::new("ANSWER"),
        Column::new("WHY"),
        Column::wide("REPLICA"),
        Column::wide("REVISION"),
        Column::wide("REQUEST"),
    ];
    const KEY: &'static str = "records";

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        let answer = match (&*self.code, &*self.reason) {
            ("Ok", _) if self.dry_run => Cell::from("dry run"),
            ("Ok", _) => Cell::toned("done", Tone::Good),
            (code, "") => Cell::toned(code, Tone::Bad),
            (_, reason) => Cell::toned(reason, Tone::Bad),
        };
        let revision = self.revision.map(|revision| revision.to_string());
        vec![
            (*self.time).into(),
            (*self.user).into(),
            (*self.from).into(),
            (*self.method).into(),
            (*self.subject).into(),
            answer,
            (*self.why).into(),
            self.replica_id.to_string().into(),
            revision.unwrap_or_default().into(),
            (*self.request_id).into(),
        ]
    }

    fn name(&self) -> String {
        format!("{}.{}", self.replica_id, self.sequence)
    }
}
