//! Rate limits of users' calls.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Users tracked at a time; beyond that, users without recent calls are forgotten.
const BUCKETS_MAX: usize = 4_096;

/// Rate limit of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowance {
    /// Sustained calls per second; 0: unlimited.
    pub(super) per_second: u32,
    /// Burst of calls after a pause.
    pub(super) at_once: u32,
}

/// Token buckets of users: each fills steadily, and every call takes one token.
#[derive(Debug, Default)]
pub(super) struct Rates {
    buckets: Mutex<BTreeMap<String, Bucket>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    calls: f64,
    at: Instant,
}

impl Rates {
    /// Takes one call of a user, or returns the time until the next one is allowed.
    pub(super) fn take(
        &self,
        user: &str,
        now: Instant,
        allowance: Allowance,
    ) -> Result<(), Duration> {
        if allowance.per_second == 0 {
            return Ok(());
        }
        let (fills, full) = (
            f64::from(allowance.per_second),
            f64::from(allowance.at_once.max(1)),
        );
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if buckets.len() >= BUCKETS_MAX && !buckets.contains_key(user) {
            // A bucket that would be full by now equals a new one.
            buckets.retain(|_, bucket| bucket.filled(now, fills, full) < full);
        }
        let fresh = Bucket {
            calls: full,
            at: now,
        };
        let bucket = buckets.entry(user.to_owned()).or_insert(fresh);
        let calls = bucket.filled(now, fills, full);
        bucket.at = now;
        if calls < 1.0 {
            bucket.calls = calls;
            return Err(Duration::from_secs_f64((1.0 - calls) / fills));
        }
        bucket.calls = calls - 1.0;
        Ok(())
    }
}

impl Bucket {
    /// Tokens in the bucket by now.
    fn filled(&self, now: Instant, fills: f64, full: f64) -> f64 {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        (self.calls + passed * fills).min(full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEN: Allowance = Allowance {
        per_second: 10,
        at_once: 3,
    };

    #[test]
    fn a_user_may_burst_and_is_then_limited_to_the_rate_per_second() {
        let (rates, begin) = (Rates::default(), Instant::now());
        for _ in 0..3 {
            assert_eq!(rates.take("ada", begin, TEN), Ok(()));
        }
        assert_eq!(
            rates.take("ada", begin, TEN),
            Err(Duration::from_millis(100))
        );
        assert_eq!(
            rates.take("bob", begin, TEN),
            Ok(()),
            "each user has its own bucket"
        );
        let later = begin + Duration::from_millis(250);
        assert_eq!(rates.take("ada", later, TEN), Ok(()));
        assert_eq!(rates.take("ada", later, TEN), Ok(()));
        assert!(
            rates.take("ada", later, TEN).is_err(),
            "two tokens in the time of two and a half"
        );
        let much_later = later + Duration::from_secs(60);
        let taken = (0..10).filter(|_| rates.take("ada", much_later, TEN).is_ok());
        assert_eq!(taken.count(), 3, "a bucket does not exceed its size");
    }

    #[test]
    fn without_a_limit_none_is_kept_and_too_many_users_are_forgotten() {
        let (rates, begin) = (Rates::default(), Instant::now());
        let free = Allowance {
            per_second: 0,
            at_once: 0,
        };
        assert_eq!(rates.take("ada", begin, free), Ok(()));
        for number in 0..BUCKETS_MAX {
            assert_eq!(rates.take(&number.to_string(), begin, TEN), Ok(()));
        }
        let later = begin + Duration::from_secs(1);
        assert_eq!(rates.take("ada", later, TEN), Ok(()));
        assert_eq!(rates.buckets.lock().map(|kept| kept.len()).ok(), Some(1));
    }
}
