//! Tests of the `muster` program from a user's view.
#![expect(clippy::unwrap_used, reason = "a failed test should panic")]

mod binary;
mod reference;
mod settings;
