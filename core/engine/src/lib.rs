//! Muster's core: the scheduler as a pure function.
//!
//! No I/O, no clock, no randomness, ordered maps only: the same log gives bit-identical state on every
//! replica. Everything else in the workspace is a driver around this crate.
//!
//! Start reading at [`state::State`], then [`apply`], [`plan`], [`reactor`] and [`agent`].
#![forbid(unsafe_code)]

pub mod access;
pub mod agent;
pub mod apply;
pub mod audit;
pub mod beat;
pub mod cells;
pub mod command;
pub mod desired;
pub mod effects;
pub mod event;
pub mod evidence;
pub mod feasibility;
pub mod health;
pub mod ids;
pub mod lifecycle;
pub mod limits;
pub mod moves;
pub mod plan;
pub mod quota;
pub mod reactor;
pub mod rejection;
pub mod rights;
pub mod spec;
pub mod state;
pub mod testing;
pub mod time;
pub mod timings;
pub mod topology;
