//! Pause between searches for the leader.
//!
//! A leader is replaced within a second or so: during that time searches are frequent, so that a session is
//! back a few hundred milliseconds after the new leader is up. Then they back off, so that ten thousand
//! workers do not overload a cluster that is down.

use std::time::Duration;

use tokio::time::Instant;

/// Duration of frequent searches.
const HURRY: Duration = Duration::from_secs(5);
/// Longest pause between frequent searches.
pub(super) const HURRIED: Duration = Duration::from_millis(150);
/// Longest pause after the first slow search; doubled for every further one.
const SLOW: Duration = Duration::from_millis(200);
/// Upper limit of the pause.
const SLOWEST: Duration = Duration::from_secs(7);

/// The pauses of one search.
#[derive(Debug)]
pub(super) struct Pause {
    began: Instant,
    slow_searches: u32,
}

impl Pause {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            slow_searches: 0,
        }
    }

    /// The next pause: random up to its upper limit, so that workers do not act in step.
    pub(super) fn next(&mut self) -> Duration {
        jitter(self.longest())
    }

    fn longest(&mut self) -> Duration {
        if self.began.elapsed() < HURRY {
            return HURRIED;
        }
        let longest = SLOW.saturating_mul(2u32.saturating_pow(self.slow_searches));
        self.slow_searches += 1;
        longest.min(SLOWEST)
    }
}

/// A random part of a duration.
pub(crate) fn jitter(longest: Duration) -> Duration {
    let [.., high, low] = *uuid::Uuid::new_v4().as_bytes();
    longest.mul_f64(f64::from(u16::from_be_bytes([high, low])) / f64::from(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn searches_are_frequent_first_and_rare_later() {
        let mut pause = Pause::new();
        assert_eq!(pause.longest(), HURRIED);
        tokio::time::advance(HURRY).await;
        let later: Vec<u128> = (0..8).map(|_| pause.longest().as_millis()).collect();
        assert_eq!(later, [200, 400, 800, 1_600, 3_200, 6_400, 7_000, 7_000]);
        assert!(pause.next() <= SLOWEST);
    }
}
