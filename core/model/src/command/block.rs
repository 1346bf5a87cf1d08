//! Blocks: hosts and GPUs taken out of placement.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::GpuUuid;
use crate::time::TimeMs;

/// Target of a block.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum BlockTarget {
    /// A host, by name.
    Host(String),
    /// A GPU.
    Gpu(GpuUuid),
}

impl fmt::Display for BlockTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) => write!(formatter, "host `{name}`"),
            Self::Gpu(uuid) => write!(formatter, "{uuid}"),
        }
    }
}

/// A block: why, by whom and for how long something is out of placement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Reason; required from users.
    pub reason: String,
    /// User name, or `rule:<name>`.
    pub author: String,
    /// Observation that led to the block; may be empty.
    pub evidence: String,
    /// Start time (stamped by `apply`; any proposed value is replaced).
    pub since: TimeMs,
    /// Time at which it expires; `None`: never.
    pub expires_at: Option<TimeMs>,
    /// Set for a drain: the time at which running tasks are killed.
    pub drain_deadline: Option<TimeMs>,
    /// Set for a planned block: a maintenance window of a host.
    pub planned: Option<Planned>,
}

/// Schedule of a planned block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// Start time.
    pub at: TimeMs,
    /// Milliseconds before the start during which only work that is sure to end in time is placed on the
    /// host.
    pub notice_ms: u64,
}

impl Planned {
    /// Default notice: one hour.
    pub const NOTICE_MS_DEFAULT: u64 = 3_600_000;
    /// The longest notice: 30 days.
    pub const NOTICE_MS_MAX: u64 = 30 * 86_400_000;

    /// Milliseconds that work with this run time limit (`None`: unlimited) needs on the host before the
    /// block: its limit, or the notice if that is shorter, because the work then continues elsewhere.
    #[must_use]
    pub fn needed_ms(&self, run_time_ms_max: Option<u64>) -> u64 {
        run_time_ms_max.map_or(self.notice_ms, |limit| limit.min(self.notice_ms))
    }

    /// Whether work that starts at this time with this run time limit (`None`: unlimited) has enough time
    /// before the block.
    #[must_use]
    pub fn allows_start(&self, begins_at: TimeMs, run_time_ms_max: Option<u64>) -> bool {
        begins_at.after(self.needed_ms(run_time_ms_max)) <= self.at
    }

    /// Time from which the block prevents placement of work with this run time limit.
    #[must_use]
    pub fn blocks_from(&self, run_time_ms_max: Option<u64>) -> TimeMs {
        TimeMs(self.at.0.saturating_sub(self.needed_ms(run_time_ms_max))).after(1)
    }
}

impl Block {
    /// Whether work that starts at this time with this run time limit (`None`: unlimited) does not conflict
    /// with the block: a planned block leaves it enough time before, or is over by then.
    #[must_use]
    pub fn allows_start(&self, begins_at: TimeMs, run_time_ms_max: Option<u64>) -> bool {
        self.planned.is_some_and(|planned| {
            planned.allows_start(begins_at, run_time_ms_max) || self.has_expired_at(begins_at)
        })
    }

    /// Whether it has expired by this time.
    #[must_use]
    pub fn has_expired_at(&self, instant: TimeMs) -> bool {
        self.expires_at
            .is_some_and(|expires_at| expires_at <= instant)
    }
}
