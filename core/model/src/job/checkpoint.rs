//! Checkpoints of a unit.

use serde::{Deserialize, Serialize};

use crate::ids::AttemptEpoch;
use crate::time::TimeMs;

/// A committed checkpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Attempt that wrote it.
    pub epoch: AttemptEpoch,
    /// Training step.
    pub step: u64,
    /// Absolute path.
    pub path: String,
    /// Size in bytes; 0 if not reported.
    pub size_bytes: u64,
    /// `algorithm:hex`; empty if not reported.
    pub digest: String,
    /// When it was committed.
    pub committed_at: TimeMs,
    /// Milliseconds that the task took to write it; `None` if not reported.
    pub save_ms: Option<u64>,
    /// Read error reported by a task; later attempts are not offered this checkpoint.
    pub damaged: Option<String>,
    /// The attempt that could not read it; `None` if it is not damaged.
    pub damaged_by: Option<AttemptEpoch>,
}

/// A checkpoint that is no longer kept and whose folder is to be removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removal {
    /// The attempt that wrote it.
    pub epoch: AttemptEpoch,
    /// Its step: below that of every checkpoint that is kept.
    pub step: u64,
    /// Its absolute path.
    pub path: String,
}
