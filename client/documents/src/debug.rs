//! Answers of commands that collect debug information, and of commands that run inside a task.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Processes whose log filter was changed for a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogFilters {
    pub for_ms: u64,
    pub processes: Vec<LogFilter>,
}

/// Effective log filter of a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LogFilter {
    /// `replica 1`, `worker node01`.
    pub process: String,
    pub filter: String,
}

/// A debug bundle.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DebugBundle {
    pub file: String,
    /// Number of files in it.
    pub files: usize,
    pub missing: Vec<MissingPart>,
}

/// A part that could not be collected.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MissingPart {
    pub name: String,
    pub why: String,
}

/// Advice in the answer to the commit of a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointAdvice {
    /// Seconds after which the task should save again.
    pub interval_s: u64,
}
