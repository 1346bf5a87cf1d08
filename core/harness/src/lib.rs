//! The engine in virtual time, for tests and simulations: one driver of state and clock ([`Engine`]), the decisions
//! of a leader in a simulated environment ([`Environment`]), reports of simulated workers, small clusters and jobs,
//! and plausible commands drawn from the state.
//!
//! Pure like the rest of the core: draws depend only on the numbers passed in.

#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

mod agenda;
mod cluster;
mod draw;
mod engine;
mod environment;
mod fingerprint;
mod led_cluster;
pub mod reports;

use muster_model::time::TimeMs;

pub use agenda::Agenda;
pub use cluster::{Auditor, Cluster};
pub use draw::draw_command;
pub use engine::{Engine, EngineError, Observe, Step};
pub use environment::Environment;
pub use fingerprint::fingerprinted;
pub use led_cluster::{LedCluster, WorkOutcome};
pub use muster_model::testing::{
    exit_with, gang, gpu_uuid, host, host_of_model, request_id, request_key, single, start_error,
};

/// Initial time of clusters: 2024-01-01, so that arithmetic that assumes 0 is noticed.
pub const BEGIN: TimeMs = TimeMs(1_704_067_200_000);
