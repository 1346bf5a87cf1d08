//! Backoff of the checks whether the rest of a task has ended: only the end of the main process is signalled.

use std::time::Duration;

use crate::limits::{KILL_RETRIES_QUICK, KILL_RETRY, LEASE_TICK};

/// Checks so far since the last state change.
#[derive(Debug, Default)]
pub(crate) struct Rounds(u32);

impl Rounds {
    /// Pause before the next check; it grows with the number of checks.
    pub(crate) fn pause(&mut self) -> Duration {
        let doublings = self.0.saturating_sub(KILL_RETRIES_QUICK);
        self.0 = self.0.saturating_add(1);
        let times = 1u32.checked_shl(doublings).unwrap_or(u32::MAX);
        KILL_RETRY.saturating_mul(times).min(LEASE_TICK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_wait_is_polled_ever_less_often() {
        let mut rounds = Rounds::default();
        for _ in 0..=KILL_RETRIES_QUICK {
            assert_eq!(rounds.pause(), KILL_RETRY);
        }
        assert_eq!(rounds.pause(), 2 * KILL_RETRY);
        let later: Vec<Duration> = (0..200).map(|_| rounds.pause()).collect();
        assert!(later.is_sorted() && later[100..].iter().all(|pause| *pause == LEASE_TICK));
    }
}
