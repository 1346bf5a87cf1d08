//! A user in a list.

use jiff::Timestamp;
use muster_documents::User;

use crate::output::{Cell, Column, Row};

impl Row for User {
    const COLUMNS: &'static [Column] = &[
        Column::new("NAME"),
        Column::new("ROLE"),
        Column::new("QUEUES"),
        Column::new("TOKEN"),
    ];

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        vec![
            self.name.clone().into(),
            self.role.as_str().into(),
            self.queues.join(",").into(),
            Cell::from(if self.has_token { "yes" } else { "no" }),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}
