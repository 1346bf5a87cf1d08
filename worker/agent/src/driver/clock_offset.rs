//! Offset of this host's wall clock from the leader's.
//!
//! No decision depends on wall clocks, least of all leases. But users read them, programs compare them
//! across hosts, and certificates expire by them: a host whose clock is far off gets no new tasks (rule
//! `clock_skew`).

use std::collections::VecDeque;

use muster_model::time::TimeMs;
use muster_monitor::health::{Sample, THIS_HOST};

/// Heartbeats considered; the one with the shortest round trip counts. The error of a measurement is up to
/// half of its round trip.
const HEARTBEATS_MAX: usize = 3;
/// Longer round trips are ignored: half of this is the limit of the rule.
const ROUND_TRIP_MS_MAX: u64 = 1_000;
/// The rule.
const RULE: &str = "clock_skew";
/// Its metric.
const OFFSET: &str = "offset_ms";

/// One answered heartbeat.
#[derive(Clone, Copy, Debug)]
struct Measurement {
    round_trip_ms: u64,
    /// How far this host is ahead; negative if it is behind.
    ahead_ms: i64,
}

/// The newest heartbeats of a session.
#[derive(Debug, Default)]
pub(super) struct ClockOffset(VecDeque<Measurement>);

impl ClockOffset {
    /// Takes the leader's time of an answer and the local time of its arrival; the way back counts as half
    /// of the round trip. Returns the sample for the rule; none if the round trip was too long.
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
        if self.0.len() >= HEARTBEATS_MAX {
            self.0.pop_front();
        }
        self.0.push_back(Measurement {
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

    /// The measured offset if the leader answers at `leader` and the answer arrives at `here`.
    fn read(offset: &mut ClockOffset, leader: u64, here: u64, round_trip_ms: u64) -> Option<i64> {
        let sample = offset.answered(TimeMs(leader), TimeMs(here), round_trip_ms)?;
        sample.metrics.first().map(|(_, value)| *value)
    }

    #[test]
    fn the_clock_offset_is_that_of_the_fastest_of_several_heartbeats() {
        let mut offset = ClockOffset::default();
        assert_eq!(read(&mut offset, 10_000, 10_001, 2), Some(0));
        // A slow way back looks like a clock that is ahead.
        assert_eq!(read(&mut offset, 20_000, 20_700, 800), Some(0));
        // A round trip that is too long is ignored.
        assert_eq!(read(&mut offset, 30_000, 31_500, 1_600), None);
        assert_eq!(read(&mut offset, 40_000, 40_700, 800), Some(0));
        assert_eq!(read(&mut offset, 50_000, 50_700, 800), Some(300));
    }

    #[test]
    fn the_clock_offset_is_absolute() {
        let mut ahead = ClockOffset::default();
        assert_eq!(read(&mut ahead, 20_000, 30_005, 10), Some(10_000));
        let mut behind = ClockOffset::default();
        assert_eq!(read(&mut behind, 30_000, 20_005, 10), Some(10_000));
    }
}
