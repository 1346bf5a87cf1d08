//! What the tests share.

pub(crate) mod counter;

use std::path::Path;
use std::time::Duration;

use muster_raft_store::{Config, Timings};
use tokio::time::Instant;

/// How long a test waits for a state before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Polls until `check` gives a value.
pub(crate) async fn eventually<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(value) = check().await {
            return value;
        }
        assert!(Instant::now() < deadline, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn config(id: u64, directory: &Path) -> Config {
    let mut config = Config::new(id, "test-cluster", directory);
    config.timings = Timings::FAST;
    config
}
