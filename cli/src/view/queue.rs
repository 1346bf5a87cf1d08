//! A queue in a list.

use jiff::Timestamp;
use muster_proto::v1;
use serde::Serialize;

use crate::output::{Cell, Column, Row};

/// A queue.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct QueueView {
    name: String,
    live_jobs: u64,
    live_jobs_max: u64,
}

impl From<v1::Queue> for QueueView {
    fn from(queue: v1::Queue) -> Self {
        Self {
            name: queue.name,
            live_jobs: queue.live_jobs,
            live_jobs_max: queue.live_jobs_max,
        }
    }
}

impl Row for QueueView {
    const COLUMNS: &'static [Column] = &[
        Column::new("NAME"),
        Column::new("LIVE JOBS"),
        Column::new("LIMIT"),
    ];
    const KEY: &'static str = "queues";

    fn cells(&self, _now: Timestamp) -> Vec<Cell> {
        vec![
            (*self.name).into(),
            self.live_jobs.to_string().into(),
            self.live_jobs_max.to_string().into(),
        ]
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}
