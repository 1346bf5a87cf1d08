//! Support for tests and simulations, here and in the crates above: builders of small clusters and jobs,
//! a driver that audits after every command, and plausible commands drawn from the state itself.
//!
//! Pure like the rest of the core: what is drawn depends on nothing but the numbers handed in.

mod cluster;
mod draw;

pub use cluster::Cluster;
pub use draw::draw_command;
pub use muster_model::testing::{
    exit_with, gang, gpu_uuid, host, host_of_model, request_id, single, start_error,
};
