//! What is taken out of placement, and why.

use std::fmt;

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

impl fmt::Display for BlockTarget {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) => write!(formatter, "host `{name}`"),
            Self::Gpu(uuid) => write!(formatter, "{uuid}"),
        }
    }
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
    /// Present if it was planned ahead: a maintenance window of a host.
    pub planned: Option<Planned>,
}

/// When a block begins that is planned ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// When it is put.
    pub at: TimeMs,
    /// How long before that nothing more is placed on the host that may not have ended by then, in milliseconds.
    pub notice_ms: u64,
}

impl Planned {
    /// The notice where nothing else is said: an hour.
    pub const NOTICE_MS_DEFAULT: u64 = 3_600_000;
    /// The longest notice: 30 days.
    pub const NOTICE_MS_MAX: u64 = 30 * 86_400_000;

    /// Milliseconds that what may run for so long (for ever if none) needs on the host before it: its run time, or the notice if
    /// that is shorter, for then it goes on elsewhere.
    #[must_use]
    pub fn needed_ms(&self, run_time_ms_max: Option<u64>) -> u64 {
        run_time_ms_max.map_or(self.notice_ms, |limit| limit.min(self.notice_ms))
    }

    /// Whether what begins at an instant, and may run for so long (for ever if none), has enough time before it.
    #[must_use]
    pub fn lets_begin(&self, begins_at: TimeMs, run_time_ms_max: Option<u64>) -> bool {
        begins_at.after(self.needed_ms(run_time_ms_max)) <= self.at
    }

    /// From when on it keeps off what may run for so long.
    #[must_use]
    pub fn keeps_off_from(&self, run_time_ms_max: Option<u64>) -> TimeMs {
        TimeMs(self.at.0.saturating_sub(self.needed_ms(run_time_ms_max))).after(1)
    }
}

impl Block {
    /// Whether what begins at an instant, and may run for so long (for ever if none), keeps clear of it: of a block that is
    /// planned ahead, which leaves it enough time before, or is over by then.
    #[must_use]
    pub fn lets_begin(&self, begins_at: TimeMs, run_time_ms_max: Option<u64>) -> bool {
        self.planned.is_some_and(|planned| {
            planned.lets_begin(begins_at, run_time_ms_max) || self.is_over_by(begins_at)
        })
    }

    /// Whether it has ended by itself by an instant.
    #[must_use]
    pub fn is_over_by(&self, instant: TimeMs) -> bool {
        self.expires_at
            .is_some_and(|expires_at| expires_at <= instant)
    }
}
