//! Real processes: agents with their supervisors and tasks.
#![expect(clippy::unwrap_used, reason = "a failed test should panic")]

mod accounts;
mod agent;
mod confined;
mod containers;
mod exec;
#[path = "../../../supervisor/tests/supervisor/fake_engine.rs"]
#[expect(
    dead_code,
    reason = "the requests to an engine are read by the tests of supervisors"
)]
mod fake_engine;
mod fencing;
mod formats;
mod gangs;
mod gpus;
mod health;
mod many;
mod support;
mod upgrade;
