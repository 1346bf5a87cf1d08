//! What counts for jobs that say nothing themselves.

use serde::{Deserialize, Serialize};

/// What the cluster takes for said by jobs that say nothing about it. It is part of the log, so that a build with other
/// defaults reads the same log in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDefaults {
    /// Attempts in a row without a newer checkpoint after which a unit fails that has committed one; 0: no limit.
    pub attempts_without_progress_max: u32,
    /// Spoiled checkpoints in a row after which a unit is not begun again.
    pub bad_checkpoints_max: u32,
    /// Milliseconds after its start within which an attempt's failure to read its checkpoint marks that one spoiled.
    pub restore_window_ms: u64,
}

impl Default for JobDefaults {
    /// 3 attempts, as `NVRx` and torchelastic give up after; 3 checkpoints; ten minutes.
    fn default() -> Self {
        Self {
            attempts_without_progress_max: 3,
            bad_checkpoints_max: 3,
            restore_window_ms: 600_000,
        }
    }
}
