//! When to plan: only if something changed that could let waiting work be placed, and never so often
//! that planning in vain takes more than half the leader's time.

use muster_core::time::TimeMs;
use tokio::time::{Duration, Instant};

/// Longest rest after a round that decided nothing.
pub const PLAN_REST_MS_MAX: u64 = 250;

/// Whether a planning round is due.
#[derive(Debug)]
pub(super) struct Planning {
    is_due: bool,
    /// The passing of time alone changes then what can be decided.
    at: Option<TimeMs>,
    rest_until: Option<Instant>,
}

impl Planning {
    /// A new leader plans at once.
    pub(super) const fn new() -> Self {
        Self {
            is_due: true,
            at: None,
            rest_until: None,
        }
    }

    /// Something changed that could let waiting work be placed.
    pub(super) const fn request(&mut self) {
        self.is_due = true;
    }

    /// A back-off ends or a reservation falls due at `at`.
    pub(super) fn request_at(&mut self, at: Option<TimeMs>) {
        if let Some(at) = at {
            self.at = Some(self.at.map_or(at, |earlier| earlier.min(at)));
        }
    }

    /// Takes the request if a round should run now.
    pub(super) fn take(&mut self, wall: TimeMs) -> bool {
        if self.at.is_some_and(|at| at <= wall) {
            self.at = None;
            self.is_due = true;
        }
        if !self.is_due || self.rest_until.is_some_and(|until| until > Instant::now()) {
            return false;
        }
        self.is_due = false;
        true
    }

    /// A round ran for `took` and proposed so many steps.
    pub(super) fn ran(&mut self, took: Duration, steps: usize) {
        let rest = took.min(Duration::from_millis(PLAN_REST_MS_MAX));
        self.rest_until = (steps == 0).then(|| Instant::now() + rest);
    }

    /// When to look again, if nothing happens before.
    pub(super) fn wake_at(&self, wall: TimeMs) -> Option<Instant> {
        if self.is_due {
            return Some(self.rest_until.unwrap_or_else(Instant::now));
        }
        self.at
            .map(|at| Instant::now() + Duration::from_millis(at.since(wall)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WALL: TimeMs = TimeMs(1_000);

    #[tokio::test(start_paused = true)]
    async fn a_round_in_vain_is_followed_by_a_rest_as_long() {
        let mut planning = Planning::new();
        assert!(planning.take(WALL));
        planning.ran(Duration::from_millis(40), 0);
        planning.request();
        assert!(!planning.take(WALL));
        tokio::time::advance(Duration::from_millis(41)).await;
        assert!(planning.take(WALL));
        planning.ran(Duration::from_millis(40), 7);
        planning.request();
        assert!(planning.take(WALL));
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_back_off_is_planned_for() {
        let mut planning = Planning::new();
        assert!(planning.take(WALL));
        planning.request_at(Some(TimeMs(1_500)));
        planning.request_at(Some(TimeMs(1_200)));
        assert_eq!(
            planning.wake_at(WALL),
            Some(Instant::now() + Duration::from_millis(200))
        );
        assert!(!planning.take(TimeMs(1_199)));
        assert!(planning.take(TimeMs(1_200)));
    }
}
