//! Heartbeat timing of a simulated agent, and its timeout for an answer.

use std::time::Duration;

use muster_model::timings::Timings;
use tokio::time::Instant;

/// Heartbeats of one stream.
pub(super) struct Heartbeats {
    pub(super) sequence: u64,
    /// Time of the leader's last answer, the welcome included.
    answered: Instant,
    period_ms: u64,
    pub(super) next: Instant,
}

impl Heartbeats {
    pub(super) fn new(timings: Timings) -> Self {
        let now = Instant::now();
        Self {
            sequence: 0,
            answered: now,
            period_ms: timings.heartbeat_ms,
            next: now,
        }
    }

    /// Records an answer of the leader with the heartbeat period it requests, as the real worker does.
    pub(super) fn answered(&mut self, period_ms: Option<u64>, timings: Timings) {
        self.answered = Instant::now();
        self.period_ms = period_ms.unwrap_or(timings.heartbeat_ms);
        self.next = { self.next }.min(self.answered + Duration::from_millis(self.period_ms));
    }

    pub(super) fn is_unanswered(&self, timings: Timings) -> bool {
        let wait_ms_max = timings.leader_timeout_ms(self.period_ms);
        self.answered.elapsed() > Duration::from_millis(wait_ms_max)
    }

    pub(super) fn sent(&mut self) {
        self.next = Instant::now() + Duration::from_millis(self.period_ms);
    }
}
