//! Waits between calls to a failing etcd.

use std::time::Duration;

use muster_backoff::Backoff;

/// Longest wait after the first failure.
const FIRST: Duration = Duration::from_millis(250);
/// Longest wait, and so the longest time until a recovered etcd is noticed.
const LONGEST: Duration = Duration::from_secs(15);

/// Starts before the first wait.
pub(crate) fn backoff() -> Backoff {
    Backoff::new(FIRST, LONGEST)
}
