//! Clock of the trainer. The training result does not depend on it.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The monotonic clock, for pacing, timeouts and progress lines.
#[expect(
    clippy::disallowed_methods,
    reason = "a separate program: the simulation runs without it"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Milliseconds since 1970 by the wall clock, for comparing the records of several processes.
#[expect(
    clippy::disallowed_methods,
    reason = "a separate program: the simulation runs without it"
)]
pub(crate) fn wall_ms() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis())
}

/// Microseconds of the raw monotonic clock, which all processes of a host share and which cannot be set.
pub(crate) fn raw_us() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicRaw);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000
}

/// Sleeps; the trainer has no async runtime that this could block.
#[expect(
    clippy::disallowed_methods,
    reason = "a single-threaded program that paces itself"
)]
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}

/// A point in time by which something must have happened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Instant);

impl Deadline {
    /// The deadline `duration` from now.
    pub(crate) fn after(duration: Duration) -> Self {
        Self(now() + duration)
    }

    /// Remaining time; zero once it has passed.
    pub(crate) fn remaining(self) -> Duration {
        self.0.saturating_duration_since(now())
    }

    /// Whether it has passed.
    pub(crate) fn has_passed(self) -> bool {
        self.remaining().is_zero()
    }
}
