//! How often a component failed, and what that costs it.

use serde::{Deserialize, Serialize};

use crate::health::{DAY_MS, HOUR_MS, MINUTE_MS};
use crate::time::TimeMs;

/// Wait after the first strike; four times as long for each further one.
const FIRST_WAIT_MS: u64 = 15 * MINUTE_MS;
/// Longest wait.
const WAIT_MS_MAX: u64 = DAY_MS;
/// After so many days without a strike all are forgotten.
const CLEAN_MS: u64 = 30 * DAY_MS;
/// Strikes from which on only a person gives a component back.
const MANUAL_STRIKES: u32 = 4;

/// How often a component failed within its last 30 clean days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strikes {
    count: u32,
    last: TimeMs,
}

impl Strikes {
    /// It never failed.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            count: 0,
            last: TimeMs(0),
        }
    }

    /// How many count now.
    #[must_use]
    pub const fn at(self, now: TimeMs) -> u32 {
        if now.since(self.last) >= CLEAN_MS {
            0
        } else {
            self.count
        }
    }

    /// Whether there are so many that only a person gives the component back.
    #[must_use]
    pub const fn are_for_a_person(self, now: TimeMs) -> bool {
        self.at(now) >= MANUAL_STRIKES
    }

    /// Adds so many: a failure in probation counts double.
    pub(super) const fn add(&mut self, now: TimeMs, count: u32) {
        self.count = self.at(now).saturating_add(count);
        self.last = now;
    }
}

impl Strikes {
    /// The last one was none.
    pub(super) const fn take_back(&mut self) {
        self.count = self.count.saturating_sub(1);
    }
}

/// Milliseconds from a block until its check may readmit: `15 min * 4^(strikes - 1)`, at most a day.
#[must_use]
pub fn wait_ms(strikes: u32) -> u64 {
    let Some(further) = strikes.checked_sub(1) else {
        return 0;
    };
    let factor = 1u64 << (2 * further.min(8));
    FIRST_WAIT_MS.saturating_mul(factor).min(WAIT_MS_MAX)
}

/// Milliseconds of probation: 1 h, 6 h, then 24 h.
#[must_use]
pub const fn probation_ms(strikes: u32) -> u64 {
    match strikes {
        0 | 1 => HOUR_MS,
        2 => 6 * HOUR_MS,
        _ => DAY_MS,
    }
}
