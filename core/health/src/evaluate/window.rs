//! Windows of readings that decide whether a condition is met for long enough, or often enough.

use std::collections::VecDeque;

use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

use crate::rules::Hold;

/// Remembered readings of one condition: at most `COUNT_MAX` of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    hold: Hold,
    /// The last 64 readings, the newest lowest: 1 met the condition.
    bits: u64,
    /// Time since which every reading met it.
    since: Option<TimeMs>,
    /// Times at which it was met, oldest first.
    times: VecDeque<TimeMs>,
}

impl Window {
    /// A window without readings.
    #[must_use]
    pub const fn new(hold: Hold) -> Self {
        Self {
            hold,
            bits: 0,
            since: None,
            times: VecDeque::new(),
        }
    }

    /// Applies a reading and returns whether the condition holds now.
    pub fn observe(&mut self, now: TimeMs, is_met: bool) -> bool {
        self.bits = (self.bits << 1) | u64::from(is_met);
        if !is_met {
            self.since = None;
        } else if self.since.is_none() {
            self.since = Some(now);
        }
        if let (Hold::Within { times, .. }, true) = (self.hold, is_met) {
            if self.times.len() >= times as usize {
                self.times.pop_front();
            }
            self.times.push_back(now);
        }
        self.holds(now)
    }

    /// Whether the condition holds now, without a new reading.
    #[must_use]
    pub fn holds(&self, now: TimeMs) -> bool {
        match self.hold {
            Hold::Once => self.bits & 1 == 1,
            Hold::InARow(count) => self.bits.trailing_ones() >= count,
            Hold::OutOf { met, of } => (self.bits & lowest(of)).count_ones() >= met,
            Hold::Within { times, span_ms } => {
                let is_full = self.times.len() >= times as usize;
                let oldest = self.times.front();
                is_full && oldest.is_some_and(|oldest| now.since(*oldest) <= span_ms)
            }
            Hold::For { span_ms } => self.since.is_some_and(|since| now.since(since) >= span_ms),
        }
    }
}

/// A mask of the lowest bits.
const fn lowest(count: u32) -> u64 {
    if count >= 64 {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}
