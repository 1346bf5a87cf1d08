//! A join token in a list.

use jiff::Timestamp;
use muster_proto::v1;
use serde::Serialize;

use crate::output::{Cell, Column, Row, instant};

/// A join token, without the token.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct JoinTokenView {
    id: String,
    author: String,
    created_at: String,
    expires_at: String,
    uses: u32,
    uses_max: u32,
    host_pattern: Option<String>,
    spent: bool,
}

impl From<v1::JoinTokenInfo> for JoinTokenView {
    fn from(token: v1::JoinTokenInfo) -> Self {
        Self {
            id: token.id,
            author: token.author,
            created_at: instant(token.created_at_ms),
            expires_at: instant(token.expires_at_ms),
            uses: token.uses,
            uses_max: token.uses_max,
            host_pattern: token.host_pattern,
            spent: token.is_spent,
        }
    }
}

impl Row for JoinTokenView {
    const COLUMNS: &'static [Column] = &[
        Column::new("ID"),
        Column::new("HOSTS"),
        Column::new("USES"),
        Column::new("EXPIRES"),
        Column::new("COUNTS"),
        Column::new("AUTHOR"),
    ];
    const KEY: &'static str = "tokens";

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        vec![
            self.id.clone().into(),
            { self.host_pattern.clone() }
                .unwrap_or_else(|| "*".to_owned())
                .into(),
            format!("{}/{}", self.uses, self.uses_max).into(),
            self.expires_at.clone().into(),
            Cell::from(if self.spent { "no" } else { "yes" }),
            self.author.clone().into(),
        ]
    }

    fn name(&self) -> String {
        self.id.clone()
    }
}
