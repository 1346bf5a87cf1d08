//! Queues in the state: configuration, job counts and usage history.

pub(super) mod usage;

use std::sync::Arc;

use imbl::OrdMap;
use muster_model::limits;
use muster_model::quota::{QueueConfig, QueueOrder};
use muster_model::time::TimeMs;
use serde::{Deserialize, Serialize};

/// A queue of the tree; only leaf queues take jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Queue {
    /// Its full name, unique: `research/vision`.
    pub name: Arc<str>,
    /// Configuration of the queue.
    pub config: Arc<QueueConfig>,
    /// True once the configuration no longer contains it: it accepts no new jobs, has no guarantee, and is
    /// removed with its last job.
    pub retired: bool,
    /// Unfinished jobs in it.
    pub live_jobs: u64,
    /// Past usage; stays zero while the tree has no `history_half_life_ms`.
    pub history: History,
    /// Past usage by user, where the queue is fair among users; empty while the tree has no
    /// `history_half_life_ms`.
    pub user_histories: OrdMap<Arc<str>, History>,
}

/// Past usage, decayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// GPU-milliseconds, decayed to `as_of`.
    pub gpu_ms: u64,
    /// Time of the last update.
    pub as_of: TimeMs,
}

/// Fractional bits of the fixed-point numbers below.
const DIGITS: u32 = 60;
/// The number one.
const ONE: u128 = 1 << DIGITS;
/// One over the natural logarithm of 2: the limit of constant usage, in half-lives.
const HALF_LIVES_IN_ALL: u128 = 1_663_314_137_230_540_311;
/// Fractional bits of a half-life that are evaluated.
const PART_DIGITS: usize = 48;
/// Remaining fraction after 1/2, 1/4, 1/8, ... of a half-life.
const LEFT_AFTER: [u128; PART_DIGITS] = left_after();

const fn left_after() -> [u128; PART_DIGITS] {
    let mut table = [0; PART_DIGITS];
    let mut left = ONE / 2;
    let mut digit = 0;
    while digit < PART_DIGITS {
        left = (left << DIGITS).isqrt();
        table[digit] = left;
        digit += 1;
    }
    table
}

/// Returns the fraction left after a span, in exact integer arithmetic so that every replica computes the
/// same.
fn decay(span_ms: u64, half_life_ms: u64) -> u128 {
    let halvings = span_ms / half_life_ms;
    if halvings >= u64::from(DIGITS) {
        return 0;
    }
    let part = u128::from(span_ms % half_life_ms) << PART_DIGITS;
    let part = part / u128::from(half_life_ms);
    let digits = LEFT_AFTER.iter().enumerate();
    let chosen = digits.filter(|(digit, _)| part >> (PART_DIGITS - 1 - digit) & 1 == 1);
    let left = chosen.fold(ONE, |left, (_, factor)| (left * factor) >> DIGITS);
    left >> halvings
}

impl History {
    /// Returns the usage up to `time`, with `gpus` held since `as_of`.
    #[must_use]
    pub fn at(&self, time: TimeMs, gpus: u64, half_life_ms: u64) -> Self {
        /// Bits dropped so that the largest products fit.
        const GIVEN_UP: u32 = 12;
        let half_life_ms = half_life_ms.clamp(1, limits::PERIOD_MS_MAX);
        let left = decay(time.since(self.as_of), half_life_ms);
        let kept = (u128::from(self.gpu_ms) * left) >> DIGITS;
        let in_all = (u128::from(half_life_ms) * HALF_LIVES_IN_ALL) >> DIGITS;
        let part = (ONE - left) >> GIVEN_UP;
        let added = (u128::from(gpus) * in_all).saturating_mul(part) >> (DIGITS - GIVEN_UP);
        Self {
            gpu_ms: u64::try_from(kept + added).unwrap_or(u64::MAX),
            as_of: time.max(self.as_of),
        }
    }

    /// Returns the average usage in thousandths of a GPU: a constant holder of N GPUs gets N.
    #[must_use]
    pub fn average_gpus_milli(&self, half_life_ms: u64) -> u64 {
        /// Thousandths.
        const MILLI: u128 = 1_000;
        let half_life_ms = half_life_ms.clamp(1, limits::PERIOD_MS_MAX);
        let in_all = (u128::from(half_life_ms) * HALF_LIVES_IN_ALL) >> DIGITS;
        let average = u128::from(self.gpu_ms) * MILLI / in_all.max(1);
        u64::try_from(average).unwrap_or(u64::MAX)
    }
}

impl Queue {
    /// Whether its work may use idle resources beyond its guarantee. A retired queue has no guarantee: its last
    /// jobs could not run otherwise.
    #[must_use]
    pub fn may_borrow(&self) -> bool {
        self.config.borrow || self.retired
    }

    /// Whether the past usage of each user is counted, if that of queues is.
    #[must_use]
    pub fn distinguishes_users(&self) -> bool {
        self.config.order == QueueOrder::Fair && !self.retired
    }

    /// Creates an empty queue with the default configuration.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self::configured(name, Arc::default())
    }

    /// Creates an empty queue.
    #[must_use]
    pub fn configured(name: &str, config: Arc<QueueConfig>) -> Self {
        Self {
            name: Arc::from(name),
            config,
            retired: false,
            live_jobs: 0,
            history: History::default(),
            user_histories: OrdMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn past_usage_counts_half_after_its_half_life() {
        let half_life_ms = 3_600_000;
        let history = History {
            gpu_ms: 1_000_000,
            as_of: TimeMs(0),
        };
        let later = |span_ms| history.at(TimeMs(span_ms), 0, half_life_ms).gpu_ms;
        assert_eq!(later(half_life_ms), 500_000);
        assert_eq!(later(half_life_ms * 3), 125_000);
        let quarter = later(half_life_ms / 2);
        assert!((707_000..707_200).contains(&quarter), "{quarter}");
        assert_eq!(later(half_life_ms * 100), 0);
    }

    #[test]
    fn the_average_of_constant_usage_is_that_usage() {
        let half_life_ms = 3_600_000;
        let history = History::default().at(TimeMs(half_life_ms * 50), 8, half_life_ms);
        let average = history.average_gpus_milli(half_life_ms);
        assert!((7_999..=8_000).contains(&average), "{average}");
        let later = history.at(TimeMs(half_life_ms * 51), 0, half_life_ms);
        let average = later.average_gpus_milli(half_life_ms);
        assert!((3_999..=4_000).contains(&average), "{average}");
    }

    #[test]
    fn the_decay_does_not_depend_on_the_number_of_steps() {
        let half_life_ms = 86_400_000;
        let whole = History::default().at(TimeMs(7_200_000), 8, half_life_ms);
        let mut stepped = History::default();
        for minute in 1..=120 {
            stepped = stepped.at(TimeMs(minute * 60_000), 8, half_life_ms);
        }
        let difference = whole.gpu_ms.abs_diff(stepped.gpu_ms);
        assert!(difference < whole.gpu_ms / 500, "{whole:?} {stepped:?}");
        // Eight GPUs for two hours, hardly decayed.
        let undecayed = 8 * 7_200_000;
        assert!(whole.gpu_ms > undecayed / 100 * 95 && whole.gpu_ms <= undecayed);
    }
}
