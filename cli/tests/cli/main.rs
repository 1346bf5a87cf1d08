//! The `muster` program as its users call it.
#![expect(clippy::unwrap_used, reason = "a failed test should panic")]

mod binary;
mod settings;
