//! When to send the next beat of a session, and whether the leader still answers.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_core::time::MonotonicMs;
use muster_core::timings::Timings;
use tokio::time::Instant;

use crate::limits::{BEATS_MEASURED_MAX, BEATS_PER_STATUS, STATUS_PAUSE};
use crate::metrics;
use crate::session::jitter;

/// The beats of one session.
#[derive(Debug)]
pub(super) struct Beats {
    timings: Timings,
    due: Instant,
    /// When the last one with the whole state went out.
    status_sent: Option<Instant>,
    sequence: u64,
    /// Beats left before one carries the whole state although nothing changed.
    until_status: u64,
    sent: BTreeMap<u64, MonotonicMs>,
    answered_at: MonotonicMs,
}

impl Beats {
    pub(super) fn new(timings: Timings, now: MonotonicMs) -> Self {
        Self {
            timings,
            due: Instant::now(),
            status_sent: None,
            sequence: 0,
            until_status: 0,
            sent: BTreeMap::new(),
            answered_at: now,
        }
    }

    /// When the next one must go out at the latest.
    pub(super) const fn due(&self) -> Instant {
        self.due
    }

    /// The state has changed. True: a beat must go out now. False: it becomes due soon, because one has just gone out.
    pub(super) fn is_status_due_now(&mut self) -> bool {
        let Some(pause_ends) = self.status_sent.map(|sent| sent + STATUS_PAUSE) else {
            return true;
        };
        if Instant::now() >= pause_ends {
            return true;
        }
        self.until_status = 0;
        self.due = self.due.min(pause_ends);
        false
    }

    /// Counts a beat that goes out now: its sequence, and whether it carries the whole state.
    pub(super) fn next(&mut self, now: MonotonicMs, changed: bool) -> (u64, bool) {
        let whole = changed || self.until_status == 0;
        self.until_status = if whole {
            BEATS_PER_STATUS
        } else {
            self.until_status - 1
        };
        if whole {
            self.status_sent = Some(Instant::now());
        }
        self.sequence += 1;
        self.sent.insert(self.sequence, now);
        if self.sent.len() > BEATS_MEASURED_MAX {
            self.sent.pop_first();
        }
        // Up to a tenth early, so that workers do not beat in step.
        let period = Duration::from_millis(self.timings.beat_ms);
        self.due = Instant::now() + period - jitter(period / 10);
        (self.sequence, whole)
    }

    /// A whole state did not go out: the next beat must carry it.
    pub(super) const fn status_lost(&mut self) {
        self.until_status = 0;
    }

    /// The leader acknowledged a beat: the milliseconds that took, if the beat is remembered.
    pub(super) fn acknowledged(&mut self, sequence: u64, now: MonotonicMs) -> Option<u64> {
        self.answered_at = now;
        let sent_at = self.sent.remove(&sequence);
        let round_trip_ms = sent_at.map(|sent_at| now.since(sent_at));
        round_trip_ms.inspect(|took_ms| metrics::beat_round_trip_ms(*took_ms));
        self.sent = self.sent.split_off(&sequence);
        round_trip_ms
    }

    /// Whether the leader has been silent for so long that another one should be looked for.
    pub(super) fn is_unanswered(&self, now: MonotonicMs) -> bool {
        now.since(self.answered_at) > self.timings.suspect_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: MonotonicMs = MonotonicMs(1_000);

    #[tokio::test(start_paused = true)]
    async fn the_whole_state_goes_first_after_changes_and_now_and_then() {
        let mut beats = Beats::new(Timings::default(), START);
        assert_eq!(beats.next(START, false), (1, true));
        for sequence in 2..2 + BEATS_PER_STATUS {
            assert_eq!(beats.next(START, false), (sequence, false));
        }
        assert!(beats.next(START, false).1);
        assert!(beats.next(START, true).1);
        beats.status_lost();
        assert!(beats.next(START, false).1);
    }

    #[tokio::test(start_paused = true)]
    async fn changes_in_a_row_share_a_beat() {
        let mut beats = Beats::new(Timings::default(), START);
        assert!(beats.is_status_due_now());
        assert_eq!(beats.next(START, true), (1, true));
        assert!(!beats.is_status_due_now() && !beats.is_status_due_now());
        assert_eq!(beats.due() - Instant::now(), STATUS_PAUSE);
        tokio::time::advance(STATUS_PAUSE).await;
        assert_eq!(beats.next(START, false), (2, true));
        tokio::time::advance(STATUS_PAUSE).await;
        assert!(beats.is_status_due_now());
    }

    #[tokio::test(start_paused = true)]
    async fn beats_are_due_within_their_period_and_not_in_step() {
        let mut beats = Beats::new(Timings::default(), START);
        for _ in 0..100 {
            beats.next(START, false);
            let wait = beats.due() - Instant::now();
            assert!(wait <= Duration::from_secs(5) && wait >= Duration::from_millis(4_500));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_does_not_answer_is_left() {
        let mut beats = Beats::new(Timings::default(), START);
        assert!(!beats.is_unanswered(START.after(15_000)));
        assert!(beats.is_unanswered(START.after(15_001)));
        beats.acknowledged(1, START.after(15_001));
        assert!(!beats.is_unanswered(START.after(20_000)));
    }
}
