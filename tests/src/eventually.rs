//! Polling for a state.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Time that a test waits for a state before it fails.
pub const TIMEOUT: Duration = Duration::from_secs(45);
/// Polling interval.
const POLL: Duration = Duration::from_millis(20);

/// Polls until `check` returns a value.
///
/// # Panics
/// After [`TIMEOUT`], naming the awaited state.
pub async fn eventually<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = check().await {
            return value;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        sleep(POLL).await;
    }
}
