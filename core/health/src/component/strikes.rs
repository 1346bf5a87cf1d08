//! Strikes of a component, and their consequences.

use muster_model::time::{DAY_MS, HOUR_MS, MINUTE_MS, TimeMs};
use serde::{Deserialize, Serialize};

/// Wait after the first strike; four times as long for each further one.
const FIRST_WAIT_MS: u64 = 15 * MINUTE_MS;
/// Probation after the first strike.
const FIRST_PROBATION_MS: u64 = HOUR_MS;
/// Longest wait.
const WAIT_MS_MAX: u64 = DAY_MS;
/// Maximum number of doublings of the wait between two failed checks.
const RECHECK_DOUBLINGS_MAX: u32 = 2;
/// Days without a strike after which all are forgotten.
const CLEAN_MS: u64 = 30 * DAY_MS;
/// Strikes from which on only an operator can unblock a component.
pub(super) const MANUAL_STRIKES: u32 = 4;

/// Number of failures of a component within its last 30 clean days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Strikes {
    count: u32,
    last: TimeMs,
}

impl Strikes {
    /// No strikes.
    #[must_use]
    pub const fn none() -> Self {
        Self {
            count: 0,
            last: TimeMs(0),
        }
    }

    /// Number of strikes that count now.
    #[must_use]
    pub const fn at(self, now: TimeMs) -> u32 {
        if now.since(self.last) >= CLEAN_MS {
            0
        } else {
            self.count
        }
    }

    /// Adds strikes: a failure in probation counts double.
    pub(super) const fn add(&mut self, now: TimeMs, count: u32) {
        self.count = self.at(now).saturating_add(count);
        self.last = now;
    }
}

impl Strikes {
    /// Restarts the count of clean days now.
    pub(super) const fn count_from(&mut self, now: TimeMs) {
        self.last = now;
    }

    /// Withdraws the last strike.
    pub(super) const fn take_back(&mut self) {
        self.count = self.count.saturating_sub(1);
    }
}

/// Waits, probation and repair limits after faults. Part of the rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecoveryLimits {
    /// Milliseconds from a first block until its check may readmit; four times as many for each further
    /// strike, at most a day or this.
    pub first_wait_ms: u64,
    /// Milliseconds of probation after a first strike; six times as many after the second, 24 times from the
    /// third on.
    pub first_probation_ms: u64,
    /// Number of repairs of one component within `repairs_span_ms` after which an operator must look; from
    /// the rule `remediations`.
    pub repairs_max: u32,
    /// See `repairs_max`.
    pub repairs_span_ms: u64,
    /// Number of reboots of one component within `reboots_span_ms` after which an operator must look (gpud: 2
    /// in 3 days).
    pub reboots_max: u32,
    /// See `reboots_max`.
    pub reboots_span_ms: u64,
}

impl Default for RecoveryLimits {
    /// 15 minutes and an hour: our proposals. No limit on repairs where no rule sets one; reboots as in gpud.
    fn default() -> Self {
        Self {
            first_wait_ms: FIRST_WAIT_MS,
            first_probation_ms: FIRST_PROBATION_MS,
            repairs_max: u32::MAX,
            repairs_span_ms: 7 * DAY_MS,
            reboots_max: 2,
            reboots_span_ms: 3 * DAY_MS,
        }
    }
}

impl RecoveryLimits {
    /// Milliseconds from a block until its check may readmit.
    #[must_use]
    pub fn wait_ms(self, strikes: u32) -> u64 {
        let Some(further) = strikes.checked_sub(1) else {
            return 0;
        };
        let factor = 1u64 << (2 * further.min(8));
        let most = WAIT_MS_MAX.max(self.first_wait_ms);
        self.first_wait_ms.saturating_mul(factor).min(most)
    }

    /// Milliseconds from a failed check until the next one: the wait for the strikes, or the first wait
    /// doubled up to twice while checks keep failing; a component that stays broken for weeks is not checked
    /// constantly.
    #[must_use]
    pub fn recheck_ms(self, strikes: u32, failed: u32) -> u64 {
        let doublings = failed.saturating_sub(1).min(RECHECK_DOUBLINGS_MAX);
        let further = self.first_wait_ms.saturating_mul(1 << doublings);
        self.wait_ms(strikes).max(further)
    }

    /// Milliseconds of probation: the base value, six times, then 24 times.
    #[must_use]
    pub const fn probation_ms(self, strikes: u32) -> u64 {
        let factor = match strikes {
            0 | 1 => 1,
            2 => 6,
            _ => 24,
        };
        self.first_probation_ms.saturating_mul(factor)
    }
}
