//! Time of the leader loop: the only place in this crate that reads a clock.

use muster_model::time::MonotonicMs;
use tokio::time::Instant;

/// Clocks of one replica. Sleeping is left to tokio; these only return the time.
pub trait Clock: Send + Sync + 'static {
    /// Monotonic milliseconds. Starts at two days or more, so that an age reported by another replica never
    /// reaches below zero.
    fn monotonic(&self) -> MonotonicMs;
    /// The instant at which [`Clock::monotonic`] returns `at`.
    fn instant(&self, at: MonotonicMs) -> Instant;
}

/// Initial value of a monotonic clock: longer than the longest lease (one day).
pub const MONOTONIC_START_MS: u64 = 2 * 86_400_000;

/// Tokio's clock.
///
/// It does not count suspend time, so a leader that was suspended takes leases to be younger than they are
/// and waits longer, which is the safe direction.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        Self {
            started: Instant::now(),
        }
    }
}

impl Clock for SystemClock {
    fn monotonic(&self) -> MonotonicMs {
        MonotonicMs(MONOTONIC_START_MS).after(millis(self.started.elapsed()))
    }

    fn instant(&self, at: MonotonicMs) -> Instant {
        let since_start_ms = at.since(MonotonicMs(MONOTONIC_START_MS));
        self.started + std::time::Duration::from_millis(since_start_ms)
    }
}

/// Whole milliseconds of a duration, saturating.
fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
