//! Clock of a run: monotonic, never adjusted, and shared by all processes of a host.

use rustix::time::{ClockId, clock_gettime};

/// Microseconds per second.
const SECOND_US: u64 = 1_000_000;
/// Nanoseconds per microsecond.
const US_NS: u64 = 1_000;

/// Time from the start to the end of a run, by its clock.
#[derive(Clone, Copy)]
pub(super) struct RunSpan {
    /// Start in microseconds.
    pub(super) from_us: u64,
    /// End in microseconds.
    pub(super) to_us: u64,
}

/// Returns microseconds of the raw monotonic clock, as tasks of the example trainer record them.
pub(super) fn now_us() -> u64 {
    let now = clock_gettime(ClockId::MonotonicRaw);
    let (seconds, nanoseconds) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    // The clock counts from the start of the machine: it is never negative.
    seconds.unwrap_or(0) * SECOND_US + nanoseconds.unwrap_or(0) / US_NS
}
