//! What a supervisor is told by the agent that starts it.

use std::path::PathBuf;

use muster_core::desired::TaskAssignment;
use serde::{Deserialize, Serialize};

/// Version of [`TaskSpec`] and of the messages between agent and supervisor: after an upgrade, a new agent
/// meets the supervisors of the old one.
pub const SPEC_FORMAT: u32 = 1;

/// Everything a supervisor needs to run one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// [`SPEC_FORMAT`] of the agent that wrote it.
    pub format: u32,
    /// What the leader wants to run.
    pub assignment: TaskAssignment,
    /// When the lease ends, in milliseconds of `CLOCK_BOOTTIME`.
    pub deadline_boottime_ms: u64,
    /// Where its output goes.
    pub log_directory: PathBuf,
    /// How much of its output is kept.
    pub log_limits: LogLimits,
    /// `MUSTER_CKPT_DIR`.
    pub checkpoint_directory: PathBuf,
    /// Milliseconds between two looks at that directory.
    pub checkpoint_scan_ms: u64,
    /// A cgroup to put the task in, if the host has one that we may write.
    pub cgroup: Option<PathBuf>,
}

/// How much of one log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLimits {
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// Segments kept, the newest ones.
    pub segments_max: usize,
    /// Present if output is shipped: segments beyond `segments_max` wait until they were ([`crate::Shipped`]), up to so many.
    #[serde(default)]
    pub unshipped_segments_max: Option<usize>,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            segment_bytes: crate::limits::LOG_SEGMENT_BYTES,
            segments_max: crate::limits::LOG_SEGMENTS_MAX,
            unshipped_segments_max: None,
        }
    }
}
