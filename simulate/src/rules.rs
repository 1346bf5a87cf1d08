//! Variations between runs of one policy: the operator's switches, and the information about jobs that the
//! scheduler is given.

use std::num::NonZeroU64;

use muster_model::limits;
use serde::Serialize;

/// Switches that an operator sets for every queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rules {
    /// Whether a virtual cluster with a quota may use idle resources of others.
    pub borrow: bool,
    /// Whether no job may overtake a job of the same queue that waits for room, under any policy.
    pub strict: bool,
    /// Whether running work may be moved so that the head of a queue finds contiguous room; within the
    /// engine's default bounds. Work with guaranteed cells stays.
    pub defragment: bool,
}

impl Default for Rules {
    /// Borrowing, the policy's own order, and no moves.
    fn default() -> Self {
        Self {
            borrow: true,
            strict: false,
            defragment: false,
        }
    }
}

/// Information about the jobs that the scheduler is given, beyond their requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct JobInformation {
    /// The time limits that users give their jobs.
    pub limits: TimeLimits,
    /// Whether jobs of one virtual cluster, user and number of GPUs share one name, so that the engine
    /// learns how long such jobs usually run. Otherwise each has its own.
    pub alike: bool,
    /// Whether the jobs commit their checkpoints to the scheduler, so that it knows the cost of stopping
    /// them. They write checkpoints either way.
    pub checkpoints: bool,
}

impl Default for JobInformation {
    /// No time limits, a name of its own for each job, checkpoints committed.
    fn default() -> Self {
        Self {
            limits: TimeLimits::None,
            alike: false,
            checkpoints: true,
        }
    }
}

/// Time limits that users give their jobs (`run_time_ms_max`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeLimits {
    /// No limits.
    #[default]
    None,
    /// The time that they need, to the millisecond: unknown to any real user.
    Exact,
    /// The time that they need, rounded up to a multiple.
    RoundedUp {
        /// The multiple in milliseconds.
        step_ms: NonZeroU64,
    },
}

impl TimeLimits {
    /// The limit of a job with the given duration.
    pub(crate) fn of(self, duration_ms: Option<u64>) -> Option<u64> {
        let needed_ms = duration_ms?.max(1);
        let limit_ms = match self {
            Self::None => return None,
            Self::Exact => needed_ms,
            Self::RoundedUp { step_ms } => needed_ms
                .div_ceil(step_ms.get())
                .saturating_mul(step_ms.get()),
        };
        // Longer limits cannot be submitted; a job that needs more has no limit.
        (limit_ms <= limits::PERIOD_MS_MAX).then_some(limit_ms)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn limits_are_what_is_needed_or_the_next_multiple() {
        let hours = TimeLimits::RoundedUp {
            step_ms: NonZeroU64::new(3_600_000).unwrap(),
        };
        assert_eq!(hours.of(Some(1)), Some(3_600_000));
        assert_eq!(hours.of(Some(3_600_000)), Some(3_600_000));
        assert_eq!(hours.of(Some(3_600_001)), Some(7_200_000));
        assert_eq!(TimeLimits::Exact.of(Some(0)), Some(1));
        assert_eq!(TimeLimits::None.of(Some(5)), None);
        assert_eq!(hours.of(None), None);
        assert_eq!(TimeLimits::Exact.of(Some(u64::MAX)), None);
    }
}
