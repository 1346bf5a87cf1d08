//! Faults of a simulated world, in the order in which a new one is added: `fault` defines faults and repairs
//! (`host_fault` those that sensors of a host read), `plan` draws them before the world begins, `nemesis`
//! injects and repairs them, and `coverage` lists the situations that they must lead to.

pub mod coverage;
pub mod fault;
pub mod host_fault;
pub mod nemesis;
pub mod plan;
