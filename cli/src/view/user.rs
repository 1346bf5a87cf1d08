//! A user in a list.

use jiff::Timestamp;
use muster_proto::convert::role_from_wire;
use muster_proto::v1;
use serde::Serialize;

use crate::output::{Cell, Column, Row};

/// A user with its rights, without its token.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct UserView {
    name: String,
    role: String,
    queues: Vec<String>,
    has_token: bool,
}

impl From<v1::UserInfo> for UserView {
    fn from(user: v1::UserInfo) -> Self {
        // A role of a newer cluster has no name here.
        let role = role_from_wire(user.role());
        Self {
            role: role.map_or_else(|| "unknown".to_owned(), |role| role.to_string()),
            name: user.name,
            queues: user.queues,
            has_token: user.has_token,
        }
    }
}

impl Row for UserView {
    const COLUMNS: &'static [Column] = &[
        Column::new("NAME"),
        Column::new("ROLE"),
        Column::new("QUEUES"),
        Column::new("TOKEN"),
    ];
    const KEY: &'static str = "users";

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        vec![
            self.name.clone().into(),
            self.role.clone().into(),
            self.queues.join(",").into(),
            Cell::from(if self.has_token { "yes" } else { "no" }),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}
