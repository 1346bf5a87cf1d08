//! Queues as the state keeps them: configuration and what counts in them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::quota::QueueConfig;
use crate::time::TimeMs;

/// A queue of the tree; jobs wait in those without children.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Its full name, unique: `research/vision`.
    pub name: Arc<str>,
    /// What was configured.
    pub config: Arc<QueueConfig>,
    /// True once the configuration names it no more: it takes no new jobs, has no guarantee, and goes with its last job.
    pub retired: bool,
    /// Jobs in it that are unfinished.
    pub live_jobs: u64,
    /// What it used in the past; stays zero while the tree has no `history_half_life_ms`.
    pub history: History,
}

/// Past usage, decayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// GPU-milliseconds, as they counted at `as_of`.
    pub gpu_ms: u64,
    /// When they were counted last.
    pub as_of: TimeMs,
}

impl Queue {
    /// An empty queue with the default configuration.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::configured(name, Arc::default())
    }

    /// An empty queue.
    #[must_use]
    pub fn configured(name: &str, config: Arc<QueueConfig>) -> Self {
        Self {
            name: Arc::from(name),
            config,
            retired: false,
            live_jobs: 0,
            history: History::default(),
        }
    }
}
