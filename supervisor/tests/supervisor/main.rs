//! Real processes: supervisors and badly behaved tasks.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed test should panic"
)]

mod confinement;
mod conversation;
mod fencing;
mod gangs;
mod support;
mod tasks;
