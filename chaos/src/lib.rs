//! Proof that Muster survives: deterministic simulation, real processes, oracles, and the demo.
//!
//! `sim` is level 1: the real replication, leader loop and agents in one thread, from one seed.
//! `cluster` starts real processes; `demo` breaks them in front of an audience, and `trials` breaks them one fault at a
//! time, on hosts with a network each, and measures what that costs a training. `run` is level 2: it breaks them under
//! load, time and again, and holds what everybody saw against the replicated log.
#![forbid(unsafe_code)]

pub mod check;
pub mod cluster;
pub mod demo;
pub mod dev;
mod error_chain;
mod preemption;
pub mod run;
pub mod sim;
pub mod trials;
pub mod workload;
