//! Scripts, and what is said of those that are wrong.
#![expect(clippy::unwrap_used, reason = "a failed test should panic")]

mod complaints;
mod scripts;
