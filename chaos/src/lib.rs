//! Fault-tolerance tests of Muster: deterministic simulation, real processes, checkers, and the demo.
//!
//! `sim` is level 1: the real replication, leader loop and agents in one thread, from one seed; its faults are in
//! `sim::faults`. `cluster` starts real processes and breaks them, with the faults in `cluster::faults`: `demo`
//! injects some for an audience, and `trials` injects them one at a time, on hosts with a network each, and measures
//! their cost to a training. `run` is level 2: it injects faults repeatedly under load, and compares all observations
//! with the replicated log.
#![forbid(unsafe_code)]

pub mod checkers;
pub mod cluster;
pub mod demo;
pub mod dev;
mod error_chain;
mod preemption;
pub mod run;
pub mod sim;
pub mod trials;
pub mod workload;
