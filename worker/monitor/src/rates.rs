//! Growth rates of device counters.

use std::collections::VecDeque;

use muster_health::evaluate::Counter;
use muster_model::time::{DAY_MS, MINUTE_MS, MonotonicMs, SECOND_MS};

use crate::limits::HEALTH_INCREASES_MAX;

/// Last value of a counter.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rate {
    counter: Counter,
    read_at: Option<MonotonicMs>,
}

/// Growth of a counter between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    /// The increase.
    pub(crate) increase: i64,
    /// Time between the readings in milliseconds.
    span_ms: u64,
}

impl Rate {
    /// Growth since the last reading; none for the first.
    pub(crate) fn grow(&mut self, now: MonotonicMs, total: u64) -> Option<Growth> {
        let increase = self.counter.increase(total);
        let before = self.read_at.replace(now)?;
        Some(Growth {
            increase,
            span_ms: now.since(before).max(1),
        })
    }
}

impl Growth {
    /// Rate per second.
    pub(crate) fn per_second(self) -> i64 {
        self.per(SECOND_MS)
    }

    /// Rate per minute.
    pub(crate) fn per_minute(self) -> i64 {
        self.per(MINUTE_MS)
    }

    /// Growth of a counter of nanoseconds, in thousandths of the time span.
    pub(crate) fn permille_of_span_ns(self) -> i64 {
        let span_ns = i128::from(self.span_ms) * 1_000_000;
        narrow(i128::from(self.increase) * 1_000 / span_ns)
    }

    fn per(self, unit_ms: u64) -> i64 {
        narrow(i128::from(self.increase) * i128::from(unit_ms) / i128::from(self.span_ms))
    }
}

/// Growth of a counter within a time window that ends now.
#[derive(Clone, Debug, Default)]
pub(crate) struct WindowedGrowth(VecDeque<(MonotonicMs, i64)>);

impl WindowedGrowth {
    /// Adds an increase.
    pub(crate) fn add(&mut self, now: MonotonicMs, increase: i64) {
        if increase == 0 {
            return;
        }
        if self.0.len() >= HEALTH_INCREASES_MAX {
            self.0.pop_front();
        }
        self.0.push_back((now, increase));
    }

    /// Growth within a window.
    pub(crate) fn within(&self, now: MonotonicMs, span_ms: u64) -> i64 {
        let newest = self.0.iter().rev();
        let within = newest.take_while(|(at, _)| now.since(*at) <= span_ms);
        within.map(|(_, increase)| increase).sum()
    }
}

/// Number of items while it keeps growing: more than one new item within a week (DCGM's double-bit retired
/// pages). The week starts with the agent.
#[derive(Clone, Debug, Default)]
pub(crate) struct GrowthTracker {
    rate: Rate,
    lately: WindowedGrowth,
}

impl GrowthTracker {
    /// The total if it grew, else 0.
    pub(crate) fn read(&mut self, now: MonotonicMs, total: usize) -> i64 {
        let total = u64::try_from(total).unwrap_or(u64::MAX);
        if let Some(growth) = self.rate.grow(now, total) {
            self.lately.add(now, growth.increase);
        }
        if self.lately.within(now, 7 * DAY_MS) > 1 {
            narrow(i128::from(total))
        } else {
            0
        }
    }
}

/// Thousandths of `whole` that `part` is; 1000 if `whole` is 0.
pub(crate) fn permille(part: u64, whole: u64) -> i64 {
    if whole == 0 {
        return 1_000;
    }
    narrow(i128::from(part) * 1_000 / i128::from(whole))
}

fn narrow(value: i128) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[test]
    fn totals_become_rates_and_a_reset_is_no_step_back() {
        let mut rate = Rate::default();
        assert_eq!(rate.grow(MonotonicMs(1_000), 500), None);
        let growth = rate.grow(MonotonicMs(31_000), 560).unwrap();
        assert_eq!(
            (growth.increase, growth.per_minute(), growth.per_second()),
            (60, 120, 2)
        );
        let growth = rate.grow(MonotonicMs(32_000), 5).unwrap();
        assert_eq!(growth.increase, 5);
        let mut time = Rate::default();
        time.grow(MonotonicMs(0), 0);
        let half = time.grow(MonotonicMs(1_000), 500_000_000).unwrap();
        assert_eq!(half.permille_of_span_ns(), 500);
    }

    #[test]
    fn old_pages_count_only_while_more_than_one_a_week_joins_them() {
        let mut pages = GrowthTracker::default();
        let mut read = |day: u64, total| pages.read(MonotonicMs(day * DAY_MS), total);
        // Regardless of the number at the start.
        assert_eq!(read(0, 20), 0);
        assert_eq!(read(1, 21), 0);
        assert_eq!(read(5, 22), 22);
        assert_eq!(read(8, 22), 22);
        assert_eq!(read(9, 22), 0);
    }

    #[test]
    fn old_readings_do_not_count() {
        let mut recent = WindowedGrowth::default();
        recent.add(MonotonicMs(1_000), 7);
        recent.add(MonotonicMs(5_000), 0);
        recent.add(MonotonicMs(9_000), 2);
        assert_eq!(recent.within(MonotonicMs(10_000), 9_000), 9);
        assert_eq!(recent.within(MonotonicMs(10_000), 8_999), 2);
        assert_eq!((permille(1, 3), permille(1, 0)), (333, 1_000));
    }
}
