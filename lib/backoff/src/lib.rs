//! Waits between attempts at something that fails, random so that callers that failed together do not return
//! together.
#![forbid(unsafe_code)]

use std::time::Duration;

use fastrand::Rng;

/// Waits with full jitter: each is random between zero and a ceiling, which doubles from a first to a longest one.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    ceiling: Duration,
    random: Rng,
}

impl Backoff {
    /// Starts before the first wait.
    #[must_use]
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self::drawn_from(Rng::new(), first, longest)
    }

    /// Starts before the first wait; the same seed gives the same waits.
    #[must_use]
    pub fn seeded(seed: u64, first: Duration, longest: Duration) -> Self {
        Self::drawn_from(Rng::with_seed(seed), first, longest)
    }

    fn drawn_from(random: Rng, first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            ceiling: first.min(longest),
            random,
        }
    }

    /// Returns the wait after one more failure.
    pub fn next_wait(&mut self) -> Duration {
        let wait = self.ceiling.mul_f64(self.random.f64());
        self.ceiling = self.ceiling.saturating_mul(2).min(self.longest);
        wait
    }

    /// Starts over after a success.
    pub fn reset(&mut self) {
        self.ceiling = self.first.min(self.longest);
    }
}

/// A random part of a duration.
#[must_use]
pub fn jitter(longest: Duration) -> Duration {
    longest.mul_f64(fastrand::f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Duration = Duration::from_millis(20);
    const LONGEST: Duration = Duration::from_millis(250);

    #[test]
    fn waits_grow_to_a_bound_with_jitter_and_can_be_reset() {
        let mut backoff = Backoff::seeded(7, FIRST, LONGEST);
        let waits: Vec<Duration> = (0..100).map(|_| backoff.next_wait()).collect();
        let ceilings = [20, 40, 80, 160, 250].map(Duration::from_millis);
        assert!(
            waits
                .iter()
                .zip(ceilings)
                .all(|(wait, ceiling)| *wait < ceiling)
        );
        let late = &waits[20..];
        assert!(late.iter().all(|wait| *wait < LONGEST));
        assert!(late.iter().any(|wait| *wait > LONGEST / 2));
        assert!(late.iter().any(|wait| *wait < LONGEST / 2));
        backoff.reset();
        assert!(backoff.next_wait() < FIRST);
    }

    #[test]
    fn a_seed_gives_the_same_waits_again() {
        let waits = |seed| {
            let mut backoff = Backoff::seeded(seed, FIRST, LONGEST);
            [(); 8].map(|()| backoff.next_wait())
        };
        assert_eq!(waits(1), waits(1));
        assert_ne!(waits(1), waits(2));
    }
}
