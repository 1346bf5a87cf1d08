//! Wall clock of spans.

use std::time::{SystemTime, UNIX_EPOCH};

/// Nanoseconds since the Unix epoch.
#[must_use]
pub fn now_ns() -> u64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads it: spans of several hosts are compared, and no decision depends on them"
    )]
    let now = SystemTime::now();
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Converts milliseconds, as stamped in the log.
#[must_use]
pub const fn of_ms(milliseconds: u64) -> u64 {
    milliseconds.saturating_mul(1_000_000)
}
