//! Complete runs of the simulator, and forks of a state.
#![expect(clippy::unwrap_used, reason = "a failed test should panic")]

mod fork;
mod runs;
