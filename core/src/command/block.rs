//! What is taken out of placement, and why.

use serde::{Deserialize, Serialize};

use crate::ids::GpuUuid;
use crate::time::TimeMs;

/// What a block is put on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BlockTarget {
    /// A host, by name.
    Host(String),
    /// A GPU.
    Gpu(GpuUuid),
}

/// Why something is out of placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Why; required of people.
    pub reason: String,
    /// Who: a user's name, or `rule:<name>`.
    pub author: String,
    /// What the author saw; may be empty.
    pub evidence: String,
    /// When it was put (stamped by `apply`; any value proposed is replaced).
    pub since: TimeMs,
    /// When it ends by itself; never if none.
    pub expires_at: Option<TimeMs>,
    /// Present if running tasks must leave: the instant by which they are killed.
    pub drain_deadline: Option<TimeMs>,
}
