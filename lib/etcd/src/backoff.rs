//! Back-off between calls to a failing etcd.

use std::time::Duration;

/// The first wait is random between half of this and this.
const FIRST: Duration = Duration::from_millis(250);
/// Longest wait, and so the longest time until a recovered etcd is noticed.
const LONGEST: Duration = Duration::from_secs(15);
/// Doublings after which the longest wait is reached.
const DOUBLINGS_MAX: u32 = 8;

/// Waits that double, each randomly shortened: replicas that lost etcd together do not return together.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Resets the back-off after a success.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// Returns the wait after one more failure.
    pub(crate) fn next(&mut self) -> Duration {
        let (draw, _) = uuid::Uuid::new_v4().as_u64_pair();
        self.wait(u32::try_from(draw >> 32).unwrap_or(u32::MAX))
    }

    fn wait(&mut self, draw: u32) -> Duration {
        let whole = (FIRST * 2_u32.pow(self.failures)).min(LONGEST);
        self.failures = (self.failures + 1).min(DOUBLINGS_MAX);
        let share = 0.5 + 0.5 * f64::from(draw) / f64::from(u32::MAX);
        whole.mul_f64(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound_and_begin_anew() {
        let mut backoff = Backoff::default();
        let waits: Vec<Duration> = (0..20).map(|_| backoff.wait(u32::MAX)).collect();
        assert_eq!(waits[0], FIRST);
        assert_eq!(waits[1], FIRST * 2);
        assert_eq!(waits[19], LONGEST);
        assert!(waits.is_sorted());
        assert_eq!(backoff.wait(0), LONGEST / 2);
        backoff.reset();
        assert_eq!(backoff.wait(0), FIRST / 2);
    }
}
