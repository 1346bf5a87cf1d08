//! Configuration of defragmentation: when and how much running work may be moved.

use serde::{Deserialize, Serialize};

/// Bounds of defragmentation moves. If set in a queue tree, running work of `movable` queues may be moved to
/// where it fits as well, if a unit at the head of its queue then finds the contiguous room that it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Defragment {
    /// Maximum number of units moved for one waiting unit; at least 1.
    pub moves_max: u32,
    /// Maximum number of units in motion in the whole cluster; at least 1.
    pub moves_in_flight_max: u32,
    /// Minimum milliseconds between two moves of one unit.
    pub interval_ms: u64,
    /// Milliseconds that a unit waits before others are moved for it.
    pub after_ms: u64,
    /// Maximum cost of moves in percent of their gain; 1 to 100.
    pub cost_percent_max: u32,
    /// Milliseconds that a moved unit takes to restart, besides its grace and the work since its newest
    /// checkpoint.
    pub restart_ms: u64,
    /// Maximum run time in milliseconds of a unit without a committed checkpoint that may be moved.
    pub young_ms: u64,
}

impl Default for Defragment {
    /// Four moves for one unit, 32 in motion, one per hour for each; after a wait of one minute, at half of
    /// the gain; two minutes to restart, ten without a checkpoint.
    fn default() -> Self {
        Self {
            moves_max: 4,
            moves_in_flight_max: 32,
            interval_ms: 3_600_000,
            after_ms: 60_000,
            cost_percent_max: 50,
            restart_ms: 120_000,
            young_ms: 600_000,
        }
    }
}
