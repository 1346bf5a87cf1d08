//! Simulated clocks: the paused runtime clock plus the errors of each machine's clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use muster_model::time::MonotonicMs;
use muster_raft_store::Clock as WallClock;
use muster_scheduler::leader::MONOTONIC_START_MS;
use tokio::time::Instant;

/// Wall-clock time at the start of every world: 2026-01-01, for realistic timestamps.
const BEGIN_MS: u64 = 1_767_225_600_000;

/// Clocks of one machine: a wall clock that may be set, and a monotonic one that may drift.
#[derive(Clone, Debug)]
pub struct SimClock {
    began: Instant,
    wall_offset_ms: Arc<AtomicI64>,
    drift_permille: i64,
}

impl SimClock {
    /// A clock that runs `drift_permille` thousandths fast (slow if negative).
    #[must_use]
    pub fn new(began: Instant, drift_permille: i64) -> Self {
        Self {
            began,
            wall_offset_ms: Arc::new(AtomicI64::new(0)),
            drift_permille,
        }
    }

    /// Sets the wall clock forward or back.
    pub fn step_wall(&self, by_ms: i64) {
        self.wall_offset_ms.fetch_add(by_ms, Ordering::Relaxed);
    }

    /// The monotonic clock if setting the wall clock set it too.
    #[must_use]
    pub fn monotonic_by_wall(&self) -> MonotonicMs {
        let offset_ms = self.wall_offset_ms.load(Ordering::Relaxed);
        MonotonicMs(self.monotonic().0.saturating_add_signed(offset_ms))
    }

    /// The monotonic clock; all machines' clocks have the same origin.
    #[must_use]
    pub fn monotonic(&self) -> MonotonicMs {
        let elapsed = i64::try_from(self.began.elapsed().as_millis()).unwrap_or(i64::MAX);
        let drifted = elapsed + elapsed * self.drift_permille / 1_000;
        MonotonicMs(MONOTONIC_START_MS + u64::try_from(drifted).unwrap_or_default())
    }
}

impl WallClock for SimClock {
    fn now_ms(&self) -> u64 {
        let elapsed = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        (BEGIN_MS + elapsed).saturating_add_signed(self.wall_offset_ms.load(Ordering::Relaxed))
    }
}

impl muster_scheduler::leader::Clock for SimClock {
    fn monotonic(&self) -> MonotonicMs {
        self.monotonic()
    }

    fn instant(&self, at: MonotonicMs) -> Instant {
        let drifted_ms = at.since(MonotonicMs(MONOTONIC_START_MS));
        let true_ms = drifted_ms * 1_000 / 1_000u64.saturating_add_signed(self.drift_permille);
        // One millisecond late rather than early: a timer that fires early spins.
        self.began + Duration::from_millis(true_ms + 1)
    }
}
