//! A group of three replicas on loopback, and fake workers that speak the session protocol.

mod client;
mod group;
mod worker;

use std::time::Duration;

pub(crate) use client::{Client, gang, job};
pub(crate) use group::{Group, TIMINGS};
pub(crate) use worker::{FakeWorker, PRINTED_BYTES, WorkerOptions, printed_at};

/// Longest wait of a test for a state.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Polls until `check` returns a value.
pub(crate) async fn eventually<T>(what: &str, mut check: impl AsyncFnMut() -> Option<T>) -> T {
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = check().await {
            return value;
        }
        assert!(tokio::time::Instant::now() < deadline, "timed out: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
