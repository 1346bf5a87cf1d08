//! A replica of the group.

use jiff::Timestamp;
use muster_documents::{Member, MemberRole, REPLICA_SILENT_MS};

use crate::output::{Cell, Column, Row, Tone, span};

/// Lag of a replica in log entries.
pub(super) fn lag(lag_entries: Option<u64>) -> Cell {
    let lag = lag_entries.map(|lag| format!("{lag} entries"));
    lag.unwrap_or_default().into()
}

/// Time of the last contact of a replica with the leader.
pub(super) fn last_contact(age_ms: Option<u64>) -> Cell {
    let Some(age_ms) = age_ms else {
        return Cell::default();
    };
    let tone = if age_ms > REPLICA_SILENT_MS {
        Tone::Bad
    } else {
        Tone::Plain
    };
    Cell::toned(format!("{} ago", span(age_ms)), tone)
}

impl Row for Member {
    const COLUMNS: &'static [Column] = &[
        Column::new("ID"),
        Column::new("ADDRESS"),
        Column::new("ROLE"),
        Column::new("LAG"),
        Column::new("LAST CONTACT"),
        Column::new("VERSION"),
        Column::wide("MATCHED"),
    ];

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        let role = match self.role {
            MemberRole::Leader => Tone::Good,
            MemberRole::Learner => Tone::Waiting,
            MemberRole::Voter | MemberRole::Unknown => Tone::Plain,
        };
        let matched = self.matched_index.map(|index| index.to_string());
        let version = match &self.version {
            Some(version) => Cell::from(&**version),
            None => Cell::toned("no answer", Tone::Bad),
        };
        vec![
            self.id.to_string().into(),
            (*self.address).into(),
            Cell::toned(self.role.as_str(), role),
            lag(self.lag_entries),
            last_contact(self.last_heartbeat_age_ms),
            version,
            matched.unwrap_or_default().into(),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}
