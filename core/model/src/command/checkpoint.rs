//! Checkpoint commits of tasks.

use serde::{Deserialize, Serialize};

use crate::ids::AttemptEpoch;

/// A checkpoint that a task committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointCommit {
    /// Attempt that wrote it.
    pub epoch: AttemptEpoch,
    /// Training step; strictly increasing within an attempt.
    pub step: u64,
    /// Absolute path of the directory.
    pub path: String,
    /// Size in bytes; 0 if unknown.
    pub size_bytes: u64,
    /// `algorithm:hex`; empty if unknown.
    pub digest: String,
    /// Milliseconds that the task took to write it; `None` if unknown.
    pub save_ms: Option<u64>,
}
