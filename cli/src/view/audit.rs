//! A record of the audit log.

use jiff::Timestamp;
use muster_documents::AuditRecord;

use crate::output::{Cell, Column, Row, Tone};

impl Row for AuditRecord {
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

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        let answer = match (&*self.code, &*self.reason) {
            ("Ok", _) if self.dry_run => Cell::from("dry run"),
            ("Ok", _) => Cell::toned("done", Tone::Good),
            (code, "") => Cell::toned(code, Tone::Bad),
            (_, reason) => Cell::toned(reason, Tone::Bad),
        };
        let revision = self.revision.map(|revision| revision.to_string());
        vec![
            self.time.to_string().into(),
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
