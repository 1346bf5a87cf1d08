//! Data types of the core: ids, time, limits, job specifications, commands, events and rejections.
//!
//! Plain types with their validation, without decisions about a cluster's state. Clients need no other crate
//! of the core.
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

pub mod access;
pub mod checkpoint_interval;
pub mod command;
pub mod desired;
pub mod event;
pub mod evidence;
pub mod health;
pub mod heartbeat;
pub mod host;
pub mod ids;
pub mod job;
pub mod lifecycle;
pub mod limits;
pub mod named_enum;
pub mod quota;
pub mod rejection;
pub mod spec;
pub mod testing;
pub mod time;
pub mod timings;
pub mod topology;
