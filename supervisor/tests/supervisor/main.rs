//! Real processes: supervisors and badly behaved tasks.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed test should panic"
)]

mod gangs;
mod support;
mod suspension;
mod tasks;
