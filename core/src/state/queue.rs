//! Queues: one level for now.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::limits;

/// Where jobs wait, in order of priority and then of submission.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Its name, unique.
    pub name: Arc<str>,
    /// Jobs that may be unfinished in it at a time.
    pub live_jobs_max: u64,
    /// Jobs that are.
    pub live_jobs: u64,
}

impl Queue {
    /// An empty queue with the default limit.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: Arc::from(name),
            live_jobs_max: limits::LIVE_JOBS_PER_QUEUE_MAX,
            live_jobs: 0,
        }
    }
}
