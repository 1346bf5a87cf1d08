//! Pause between searches for the leader.
//!
//! A leader is replaced within a second or so: during that time searches are frequent, so that a session is
//! back a few hundred milliseconds after the new leader is up. Then they back off, so that ten thousand
//! workers do not overload a cluster that is down.

use std::time::Duration;

use muster_backoff::{Backoff, jitter};
use tokio::time::Instant;

/// Duration of frequent searches.
const FREQUENT_PERIOD: Duration = Duration::from_secs(5);
/// Longest pause between frequent searches.
pub(super) const FREQUENT_PAUSE_MAX: Duration = Duration::from_millis(150);
/// Longest pause after the first slow search; doubled for every further one.
const SLOW: Duration = Duration::from_millis(200);
/// Upper limit of the pause.
const SLOWEST: Duration = Duration::from_secs(7);

/// The pauses of one search.
#[derive(Debug)]
pub(super) struct Pause {
    began: Instant,
    slow: Backoff,
}

impl Pause {
    pub(super) fn new() -> Self {
        Self {
            began: Instant::now(),
            slow: Backoff::new(SLOW, SLOWEST),
        }
    }

    /// The next pause: random up to its upper limit, so that workers do not act in step.
    pub(super) fn next(&mut self) -> Duration {
        if self.began.elapsed() < FREQUENT_PERIOD {
            jitter(FREQUENT_PAUSE_MAX)
        } else {
            self.slow.next_wait()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn searches_are_frequent_first_and_rare_later() {
        let mut pause = Pause::new();
        let mut waits = || -> Vec<Duration> { (0..100).map(|_| pause.next()).collect() };
        assert!(waits().iter().all(|wait| *wait <= FREQUENT_PAUSE_MAX));
        tokio::time::advance(FREQUENT_PERIOD).await;
        let later = waits();
        assert!(later.iter().all(|wait| *wait <= SLOWEST));
        assert!(later.iter().any(|wait| *wait > SLOWEST / 2));
    }
}
