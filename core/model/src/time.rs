//! Time in the core: numbers passed in by drivers; the core never reads a clock.

use std::fmt;

use serde::{Deserialize, Serialize};

/// One second, in milliseconds.
pub const SECOND_MS: u64 = 1_000;
/// One minute, in milliseconds.
pub const MINUTE_MS: u64 = 60 * SECOND_MS;
/// One hour, in milliseconds.
pub const HOUR_MS: u64 = 60 * MINUTE_MS;
/// One day, in milliseconds.
pub const DAY_MS: u64 = 24 * HOUR_MS;

/// Milliseconds since the Unix epoch, stamped by the leader and monotone over the whole log.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct TimeMs(pub u64);

impl TimeMs {
    /// This time plus a span in milliseconds, saturating.
    #[must_use]
    pub const fn after(self, span_ms: u64) -> Self {
        Self(self.0.saturating_add(span_ms))
    }

    /// Milliseconds from `earlier` until this time; 0 if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl fmt::Display for TimeMs {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}ms", self.0)
    }
}

/// Milliseconds on one process's monotonic clock that counts suspend time; never compared between
/// processes and never replicated.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct MonotonicMs(pub u64);

impl MonotonicMs {
    /// This instant plus a span in milliseconds, saturating.
    #[must_use]
    pub const fn after(self, span_ms: u64) -> Self {
        Self(self.0.saturating_add(span_ms))
    }

    /// Milliseconds from `earlier` until this instant; 0 if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
