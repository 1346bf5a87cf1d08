//! How far this host's wall clock is from the leader's.
//!
//! Nothing is decided by wall clocks, leases least of all. But people read them, programs compare them across hosts, and
//! certificates expire by them: a host whose clock is far off takes nothing new (rule `clock_skew`).

use std::collections::VecDeque;

use muster_model::time::TimeMs;

use crate::health::{Sample, THIS_HOST};

/// Beats of which the one with the shortest round trip counts: what a slow one says is off by up to half of what it took.
const BEATS: usize = 3;
/// Round trips that take longer say nothing: half of it is what the rule calls far off.
const ROUND_TRIP_MS_MAX: u64 = 1_000;
/// The rule.
const RULE: &str = "clock_skew";
/// Its metric.
const OFFSET: &str = "offset_ms";

/// One answered beat.
#[derive(Clone, Copy, Debug)]
struct Round {
    round_trip_ms: u64,
    /// How far this host is ahead, or behind if it is negative.
    ahead_ms: i64,
}

/// The newest beats of a session.
#[derive(Debug, Default)]
pub(super) struct ClockOffset(VecDeque<Round>);

impl ClockOffset {
    /// Takes in by which time the leader answered a beat, and by which time that arrived. The way back is taken for half of
    /// the round trip. What there is to judge now; nothing if the beat took too long to say anything.
    pub(super) fn answered(
        &mut self,
        leader: TimeMs,
        here: TimeMs,
        round_trip_ms: u64,
    ) -> Option<Sample> {
        if round_trip_ms > ROUND_TRIP_MS_MAX {
            return None;
        }
        let then = leader.after(round_trip_ms / 2);
        let (ahead, behind) = (signed(here.since(then)), signed(then.since(here)));
        if self.0.len() >= BEATS {
            self.0.pop_front();
        }
        self.0.push_back(Round {
            round_trip_ms,
            ahead_ms: ahead - behind,
        });
        let newest_first = self.0.iter().rev();
        let best = newest_first.min_by_key(|round| round.round_trip_ms)?;
        let metrics = [(OFFSET, best.ahead_ms.saturating_abs())];
        Some(Sample::new(RULE, THIS_HOST, &metrics))
    }
}

fn signed(span_ms: u64) -> i64 {
    i64::try_from(span_ms).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read when the leader answers at `leader` and that arrives at `here`.
    fn read(offset: &mut ClockOffset, leader: u64, here: u64, round_trip_ms: u64) -> Option<i64> {
        let sample = offset.answered(TimeMs(leader), TimeMs(here), round_trip_ms)?;
        sample.metrics.first().map(|(_, value)| *value)
    }

    #[test]
    fn a_clock_is_off_by_what_the_quickest_of_some_beats_says() {
        let mut offset = ClockOffset::default();
        assert_eq!(read(&mut offset, 10_000, 10_001, 2), Some(0));
        // A slow way back looks like a clock that is ahead.
        assert_eq!(read(&mut offset, 20_000, 20_700, 800), Some(0));
        // One that takes too long is not heard at all.
        assert_eq!(read(&mut offset, 30_000, 31_500, 1_600), None);
        assert_eq!(read(&mut offset, 40_000, 40_700, 800), Some(0));
        assert_eq!(read(&mut offset, 50_000, 50_700, 800), Some(300));
    }

    #[test]
    fn a_clock_that_is_ahead_and_one_that_is_behind_are_as_wrong() {
        let mut ahead = ClockOffset::default();
        assert_eq!(read(&mut ahead, 20_000, 30_005, 10), Some(10_000));
        let mut behind = ClockOffset::default();
        assert_eq!(read(&mut behind, 30_000, 20_005, 10), Some(10_000));
    }
}
