//! Real processes: supervisors and badly behaved tasks.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed test should panic"
)]

mod containers;
mod fake_engine;
mod podman;
mod support;
mod tasks;
