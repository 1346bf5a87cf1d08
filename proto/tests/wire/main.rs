//! The wire: frozen bytes, and conversions there and back.
#![expect(clippy::unwrap_used, reason = "a failed test should panic")]

mod frozen;
mod round_trip;
