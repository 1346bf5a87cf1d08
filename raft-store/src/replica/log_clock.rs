//! Clock of entry time stamps: the wall clock while it advances, and elapsed monotonic time while it does
//! not.
//!
//! A wall clock that is set back must not stop the state's time for that long: every back-off and every
//! expiry would wait for it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::replica::environment::Clock;

/// Clock that always advances and never goes back.
#[derive(Clone)]
pub(crate) struct LogClock {
    wall: Arc<dyn Clock>,
    newest: Arc<Mutex<Reading>>,
}

#[derive(Clone, Copy)]
struct Reading {
    time_ms: u64,
    at: Instant,
}

impl LogClock {
    pub(crate) fn new(wall: Arc<dyn Clock>) -> Self {
        let newest = Reading {
            time_ms: 0,
            at: Instant::now(),
        };
        Self {
            wall,
            newest: Arc::new(Mutex::new(newest)),
        }
    }

    /// Milliseconds since 1970, at least `floor_ms` (newest time in the state), and at least the last
    /// reading plus the time elapsed since.
    pub(crate) fn read(&self, floor_ms: u64) -> u64 {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let at = Instant::now();
        let continued_ms = newest.time_ms.saturating_add(millis(at - newest.at));
        let time_ms = self.wall.now_ms().max(continued_ms).max(floor_ms);
        // Only a reading that advanced is kept: many readings within one millisecond would otherwise lose
        // elapsed time.
        if time_ms != newest.time_ms {
            *newest = Reading { time_ms, at };
        }
        time_ms
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[derive(Default)]
    struct Wall(AtomicU64);

    impl Clock for Wall {
        fn now_ms(&self) -> u64 {
            self.0.load(Ordering::Relaxed)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_advances_while_the_wall_clock_is_set_back() {
        let wall = Arc::new(Wall(AtomicU64::new(10_000)));
        let clock = LogClock::new(Arc::clone(&wall) as _);
        assert_eq!(clock.read(0), 10_000);
        wall.0.store(3_000, Ordering::Relaxed);
        tokio::time::advance(Duration::from_millis(250)).await;
        assert_eq!(clock.read(0), 10_250);
        wall.0.store(50_000, Ordering::Relaxed);
        assert_eq!(clock.read(0), 50_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_leader_continues_from_the_newest_time_in_the_state() {
        let clock = LogClock::new(Arc::new(Wall::default()));
        assert_eq!(clock.read(7_000), 7_000);
        tokio::time::advance(Duration::from_millis(40)).await;
        assert_eq!(clock.read(7_000), 7_040);
    }
}
