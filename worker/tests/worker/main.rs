//! Real processes: agents with their supervisors and tasks.
#![expect(clippy::unwrap_used, reason = "a failed test should panic")]

mod agent;
mod exec;
mod formats;
mod many;
mod support;
