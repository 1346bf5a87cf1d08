//! The clock of a run: the one that all processes of a host share and that nobody sets.

use rustix::time::{ClockId, clock_gettime};

/// Microseconds of a second.
const SECOND_US: u64 = 1_000_000;
/// Nanoseconds of a microsecond.
const US_NS: u64 = 1_000;

/// Microseconds of the raw monotonic clock: tasks of the example trainer write down the same.
pub(super) fn now_us() -> u64 {
    let now = clock_gettime(ClockId::MonotonicRaw);
    let (seconds, nanoseconds) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    // The clock counts from the start of the machine: it is never negative.
    seconds.unwrap_or(0) * SECOND_US + nanoseconds.unwrap_or(0) / US_NS
}
