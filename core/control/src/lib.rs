//! Pure decisions of the running roles, without I/O: [`reactor`] for the leader, [`agent`] for a host's
//! worker.
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

pub mod agent;
pub mod reactor;
