//! A replica of the group.

use jiff::Timestamp;
use muster_proto::v1;
use serde::Serialize;

use crate::output::{Cell, Column, Row, Tone, span};
use crate::view::word::word;

/// Silence of a replica in milliseconds that is highlighted: ten heartbeats by the default timings.
pub(super) const SILENT_MS: u64 = 1_000;

/// One replica of the group.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct MemberView {
    id: u64,
    address: String,
    role: String,
    matched_index: Option<u64>,
    lag_entries: Option<u64>,
    heard_ago_ms: Option<u64>,
    version: Option<String>,
}

impl MemberView {
    /// A replica, and its version if it answered.
    pub(crate) fn new(replica: v1::Replica, version: Option<String>) -> Self {
        let role = match replica.role() {
            v1::ReplicaRole::Follower | v1::ReplicaRole::Candidate => "voter".to_owned(),
            role => word(role.as_str_name(), "REPLICA_ROLE_").replace("unspecified", "unknown"),
        };
        Self {
            id: replica.id,
            address: replica.address,
            role,
            matched_index: replica.matched_index,
            lag_entries: replica.lag_entries,
            heard_ago_ms: replica.heard_ago_ms,
            version,
        }
    }
}

impl Row for MemberView {
    const COLUMNS: &'static [Column] = &[
        Column::new("ID"),
        Column::new("ADDRESS"),
        Column::new("ROLE"),
        Column::new("LAG"),
        Column::new("LAST CONTACT"),
        Column::new("VERSION"),
        Column::wide("MATCHED"),
    ];
    const KEY: &'static str = "members";

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        let role = match &*self.role {
            "leader" => Tone::Good,
            "learner" => Tone::Waiting,
            _ => Tone::Plain,
        };
        let lag = self.lag_entries.map(|lag| format!("{lag} entries"));
        let heard = self.heard_ago_ms.map(|ms| format!("{} ago", span(ms)));
        let is_silent = self.heard_ago_ms.is_some_and(|ms| ms > SILENT_MS);
        let matched = self.matched_index.map(|index| index.to_string());
        let version = match &self.version {
            Some(version) => Cell::from(&**version),
            None => Cell::toned("no answer", Tone::Bad),
        };
        vec![
            self.id.to_string().into(),
            (*self.address).into(),
            Cell::toned(&*self.role, role),
            lag.unwrap_or_default().into(),
            Cell::toned(
                heard.unwrap_or_default(),
                if is_silent { Tone::Bad } else { Tone::Plain },
            ),
            version,
            matched.unwrap_or_default().into(),
        ]
    }

    fn name(&self) -> String {
        self.id.to_string()
    }
}
