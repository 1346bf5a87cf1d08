//! Proof that Muster survives: deterministic simulation, real processes, oracles, and the demo.
//!
//! `sim` is level 1: the real replication, leader loop and agents in one thread, from one seed.
//! `cluster` starts real processes; `demo` breaks them in front of an audience.
#![forbid(unsafe_code)]

pub mod check;
pub mod cluster;
pub mod demo;
pub mod dev;
pub mod sim;
pub mod workload;
