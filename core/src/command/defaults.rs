//! What counts for jobs that say nothing themselves.

use serde::{Deserialize, Serialize};

/// What the cluster takes for said by jobs that say nothing about it. It is part of the log, so that a build with other
/// defaults reads the same log in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDefaults {
    /// Attempts in a row without a newer checkpoint after which a unit fails that has committed one; 0: no limit.
    pub attempts_without_progress_max: u32,
}

impl Default for JobDefaults {
    /// 3 attempts, as `NVRx` and torchelastic give up after.
    fn default() -> Self {
        Self {
            attempts_without_progress_max: 3,
        }
    }
}
