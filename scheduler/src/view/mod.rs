//! The state as clients see it: records of the engine, and answers of the planner, as messages.

mod access;
mod blocker;
mod claim;
mod effect;
mod health;
mod host;
mod job;
mod pipeline;
mod queue;
mod remedy;

use muster_engine::state::State;
use muster_model::ids::HostId;

pub(crate) use access::{join_tokens_to_wire, users_to_wire};
pub(crate) use blocker::blocker_to_wire;
pub use effect::effect_to_wire;
pub(crate) use health::{health_rules_to_wire, health_to_wire, would_block_to_wire};
pub(crate) use host::gpu_to_wire;
pub use host::host_to_wire;
pub(crate) use job::{job_to_wire, unit_to_wire};
pub(crate) use pipeline::{pipeline_to_wire, pipeline_with_jobs};
pub(crate) use queue::queue_to_wire;
pub(crate) use remedy::{cells_left_to_wire, remedy_to_wire, start_to_wire};

/// Name of a host; empty if it is gone.
fn host_name(state: &State, host: HostId) -> String {
    state
        .host(host)
        .map_or_else(String::new, |host| host.name.to_string())
}
