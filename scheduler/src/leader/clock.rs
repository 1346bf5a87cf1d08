//! Time as the leader loop reads it: the one place of this crate that looks at a clock.

use muster_model::time::MonotonicMs;
use tokio::time::Instant;

/// Clocks of one replica. Sleeping is tokio's business; these only tell the time.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds that never go back. Two days or more at the start, so that an age told by another
    /// replica always lies after zero.
    fn monotonic(&self) -> MonotonicMs;
    /// The instant at which [`Clock::monotonic`] shows `at`.
    fn instant(&self, at: MonotonicMs) -> Instant;
}

/// What a monotonic clock shows at its start: longer than the longest lease (one day).
pub const MONOTONIC_START_MS: u64 = 2 * 86_400_000;

/// tokio's clock.
///
/// It does not count suspend time, so a leader that was suspended takes leases for younger than they
/// are and waits longer, which is the safe direction.
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
