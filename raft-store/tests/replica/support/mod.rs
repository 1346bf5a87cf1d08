//! Helpers shared by the tests.

pub(crate) mod counter;

use std::path::{Path, PathBuf};
use std::time::Duration;

use muster_raft_store::{Config, Handle, StateMachine, Timings};
use tokio::time::Instant;

/// Deadline of a test that waits for a state.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(20);

/// Polls until `check` returns a value.
pub(crate) async fn eventually<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
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

/// Path of the newest snapshot in a replica's data directory.
pub(crate) fn newest_snapshot(directory: &Path) -> PathBuf {
    let entries = std::fs::read_dir(directory.join("snapshots")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths.max().unwrap()
}

/// Waits until a replica leads.
pub(crate) async fn leads<M: StateMachine>(handle: &Handle<M>) {
    eventually("leadership", async || {
        handle.leadership().borrow().is_self.then_some(())
    })
    .await;
}

/// Waits until a replica has stopped by itself, and asserts that it reports the cause.
pub(crate) async fn stops<M: StateMachine>(handle: &Handle<M>) {
    eventually("the replica's end", async || {
        handle.leadership().borrow().stopped.then_some(())
    })
    .await;
    assert!(handle.status().stopped.is_some());
}
