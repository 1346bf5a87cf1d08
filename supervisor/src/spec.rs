//! What a supervisor is told by the agent that starts it.

use std::path::PathBuf;

use muster_core::desired::TaskAssignment;
use muster_core::spec::Execution;
use serde::{Deserialize, Serialize};

/// Newest version of [`TaskSpec`] and of the messages between agent and supervisor: after an upgrade, a new agent
/// meets the supervisors of the old one, and perhaps their program.
pub const SPEC_FORMAT: u32 = 2;
/// The version before tasks could be run otherwise than as plain processes.
const PLAIN_FORMAT: u32 = 1;

/// The oldest version whose supervisors run a task as it says.
#[must_use]
pub fn format_of(assignment: &TaskAssignment) -> u32 {
    if assignment.execution == Execution::default() {
        PLAIN_FORMAT
    } else {
        SPEC_FORMAT
    }
}

/// Everything a supervisor needs to run one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Its version, see [`format_of`].
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
    /// What makes its container, if the host has an engine.
    #[serde(default)]
    pub engine: Option<EngineAccess>,
}

/// A container engine, and what a supervisor must know to use it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineAccess {
    /// Its socket.
    pub socket: PathBuf,
    /// The worker's id, by which its containers are known.
    pub worker: String,
    /// Whether the GPUs of the host are real: simulated ones are no devices.
    pub has_real_gpus: bool,
}

/// How much of one log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLimits {
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// Segments kept, the newest ones.
    pub segments_max: usize,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            segment_bytes: crate::limits::LOG_SEGMENT_BYTES,
            segments_max: crate::limits::LOG_SEGMENTS_MAX,
        }
    }
}
