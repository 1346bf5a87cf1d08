//! The replicated state machine: `apply` changes the state by one command, `audit` checks every invariant.
//!
//! No I/O, no clock, no randomness, ordered maps only: the same log gives bit-identical state on every replica.
//! Start reading at [`state::State`], then [`apply`].
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

pub mod apply;
pub mod audit;
pub mod cells;
pub mod desired;
pub mod effects;
pub mod feasibility;
pub mod moves;
pub mod rights;
pub mod state;
