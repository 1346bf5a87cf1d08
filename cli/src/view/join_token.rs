//! A join token in a list.

use jiff::Timestamp;
use muster_documents::JoinToken;

use crate::output::{Cell, Column, Row};

impl Row for JoinToken {
    const COLUMNS: &'static [Column] = &[
        Column::new("ID"),
        Column::new("HOSTS"),
        Column::new("USES"),
        Column::new("EXPIRES"),
        Column::new("COUNTS"),
        Column::new("AUTHOR"),
    ];

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        vec![
            self.id.clone().into(),
            self.host_pattern.as_deref().unwrap_or("*").into(),
            format!("{}/{}", self.uses, self.uses_max).into(),
            self.expires_at.to_string().into(),
            Cell::from(if self.spent { "no" } else { "yes" }),
            self.author.clone().into(),
        ]
    }

    fn name(&self) -> String {
        self.id.clone()
    }
}
