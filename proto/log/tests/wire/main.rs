//! The wire: frozen bytes, and conversions in both directions.
#![expect(clippy::unwrap_used, reason = "a failed test should panic")]

mod frozen;
mod round_trip;
