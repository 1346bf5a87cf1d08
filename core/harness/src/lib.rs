//! Support for tests and simulations in this and other crates: builders of small clusters and jobs, a driver
//! that audits after every command, and plausible commands drawn from the state.
//!
//! Pure like the rest of the core: draws depend only on the numbers passed in.

mod cluster;
mod draw;
mod fingerprint;

pub use cluster::Cluster;
pub use draw::draw_command;
pub use fingerprint::fingerprinted;
pub use muster_model::testing::{
    exit_with, gang, gpu_uuid, host, host_of_model, request_id, request_key, single, start_error,
};
