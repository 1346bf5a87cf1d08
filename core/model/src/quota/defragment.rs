//! When running work may be moved to make room in one piece, and how much of it.

use serde::{Deserialize, Serialize};

/// Bounds of moves. Present in a tree of queues, it lets running work of queues that say so (`movable`) be moved to
/// where it fits as well, if a unit at the head of its queue then finds the room that there is only in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Defragment {
    /// Units that are moved for one waiting unit at most; at least 1.
    pub moves_max: u32,
    /// Units on the move at a time in the whole cluster; at least 1.
    pub moves_in_flight_max: u32,
    /// Milliseconds between two moves of one unit.
    pub interval_ms: u64,
    /// Milliseconds that a unit waits for room before others are moved for it.
    pub after_ms: u64,
    /// What moves may cost at most, in percent of what they gain; 1 to 100.
    pub cost_percent_max: u32,
    /// Milliseconds that a moved unit takes to be where it was, beside its grace and the work since its newest
    /// checkpoint.
    pub restart_ms: u64,
    /// Milliseconds that a unit may have run which has committed no checkpoint; one that ran for longer stays.
    pub young_ms: u64,
}

impl Default for Defragment {
    /// Four moves for one unit, 32 at a time, one an hour for each; after a minute's wait, at half of the gain; two
    /// minutes to start again, ten without a checkpoint.
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
