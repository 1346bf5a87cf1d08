//! When a simulated agent beats, and how long it waits for an answer.

use std::time::Duration;

use muster_model::timings::Timings;
use tokio::time::Instant;

/// The beats of one stream.
pub(super) struct Beats {
    pub(super) sequence: u64,
    /// When the leader answered last; the welcome counts.
    answered: Instant,
    period_ms: u64,
    pub(super) next: Instant,
}

impl Beats {
    pub(super) fn new(timings: Timings) -> Self {
        let now = Instant::now();
        Self {
            sequence: 0,
            answered: now,
            period_ms: timings.beat_ms,
            next: now,
        }
    }

    /// The leader answered, and says how often it wants to hear; as the real worker obeys it.
    pub(super) fn answered(&mut self, period_ms: Option<u64>, timings: Timings) {
        self.answered = Instant::now();
        self.period_ms = period_ms.unwrap_or(timings.beat_ms);
        self.next = { self.next }.min(self.answered + Duration::from_millis(self.period_ms));
    }

    pub(super) fn is_unanswered(&self, timings: Timings) -> bool {
        let patience_ms = timings.patience_ms(self.period_ms);
        self.answered.elapsed() > Duration::from_millis(patience_ms)
    }

    pub(super) fn sent(&mut self) {
        self.next = Instant::now() + Duration::from_millis(self.period_ms);
    }
}
