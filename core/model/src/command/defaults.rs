//! Cluster defaults for job settings.

use serde::{Deserialize, Serialize};

/// Cluster defaults for jobs that do not set these values. They are part of the log, so that a build with
/// other defaults replays the same log identically.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDefaults {
    /// Consecutive attempts without a newer checkpoint after which a unit that has committed one fails; 0: no
    /// limit.
    pub attempts_without_progress_max: u32,
    /// Consecutive damaged checkpoints after which a unit is not restarted.
    pub bad_checkpoints_max: u32,
    /// Milliseconds after an attempt's start within which a failure to read its checkpoint marks that one
    /// damaged.
    pub restore_window_ms: u64,
}

impl Default for JobDefaults {
    /// 3 attempts, after which `NVRx` and torchelastic give up; 3 checkpoints; ten minutes.
    fn default() -> Self {
        Self {
            attempts_without_progress_max: 3,
            bad_checkpoints_max: 3,
            restore_window_ms: 600_000,
        }
    }
}
