//! What a change of the tree of queues means.

use jiff::Timestamp;
use muster_core::quota::{Amounts, Guarantee};
use muster_proto::v1;
use serde::Serialize;

use super::queue::{amounts, guaranteed, listed};
use super::word::word;
use crate::output::{Cell, Column, Row, Table};

/// What applying a tree of queues changes, or would.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct QueueChangesView {
    revision: u64,
    dry_run: bool,
    changes: Vec<QueueChangeView>,
}

/// What changes for one queue.
#[derive(Clone, Debug, Serialize)]
struct QueueChangeView {
    name: String,
    change: String,
    live_jobs: u64,
    held: Amounts,
    guarantee: Option<Guarantee>,
    reclaimable: Option<Amounts>,
}

impl QueueChangesView {
    /// The cluster's answer.
    pub(crate) fn new(dry_run: bool, answer: v1::ConfigureQueuesResponse) -> Self {
        Self {
            revision: answer.revision,
            dry_run,
            changes: answer
                .changes
                .into_iter()
                .map(QueueChangeView::from)
                .collect(),
        }
    }

    /// One line, and a table of the queues that change.
    pub(crate) fn render(&self) -> String {
        let count = self.changes.len();
        let mut text = match (self.dry_run, count) {
            (true, 0) => "no queue would change (dry run)\n".to_owned(),
            (false, 0) => "no queue changed\n".to_owned(),
            (true, count) => {
                format!("{count} queues would change (dry run, nothing was changed)\n")
            }
            (false, count) => format!("{count} queues changed\n"),
        };
        if count == 0 {
            return text;
        }
        let mut table = Table::new(QueueChangeView::COLUMNS, false);
        for change in &self.changes {
            table.push(change.cells(Timestamp::UNIX_EPOCH));
        }
        for line in table.render(true).lines() {
            text.push_str(&format!("  {line}\n"));
        }
        text
    }

    /// Names of the queues that change, one a line.
    pub(crate) fn names(&self) -> String {
        let names = self.changes.iter();
        names.map(|change| format!("{}\n", change.name)).collect()
    }
}

impl From<v1::QueueChange> for QueueChangeView {
    fn from(change: v1::QueueChange) -> Self {
        Self {
            change: word(change.kind().as_str_name(), "KIND_"),
            name: change.name,
            live_jobs: change.live_jobs,
            held: amounts(change.usage),
            guarantee: change
                .guarantee
                .and_then(|guarantee| Guarantee::try_from(guarantee).ok()),
            reclaimable: change.reclaimable.map(Amounts::from),
        }
    }
}

impl Row for QueueChangeView {
    const COLUMNS: &'static [Column] = &[
        Column::new("NAME"),
        Column::new("CHANGE"),
        Column::new("LIVE JOBS"),
        Column::new("HELD"),
        Column::new("GUARANTEED"),
        Column::new("RECLAIMABLE"),
    ];
    const KEY: &'static str = "changes";

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        let none = || "-".to_owned();
        vec![
            (*self.name).into(),
            (*self.change).into(),
            self.live_jobs.to_string().into(),
            listed(&self.held).into(),
            self.guarantee.as_ref().map_or_else(none, guaranteed).into(),
            self.reclaimable.as_ref().map_or_else(none, listed).into(),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}
