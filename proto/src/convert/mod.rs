//! Conversions between the wire and the types of `muster-model`.
//!
//! Input from the wire is checked here: every error names the field and the rule, before anything is
//! proposed. Output to the wire cannot fail. Conversions take ownership of messages that are consumed, so
//! that strings move instead of being copied.

mod access;
mod claim;
mod container;
mod conversion;
mod desired;
mod event;
mod execution;
mod health;
mod heartbeat;
mod host;
mod ids;
mod job;
mod job_life;
mod ledger;
mod lifecycle;
mod outcome;
mod pipeline;
mod queue;
mod registration;
mod reported_topology;
mod request;
mod request_key;
mod scheduling;
mod spec;
mod topology;

pub use access::{
    add_join_token_command, add_user_command, remove_user_command, revoke_join_token_command,
    role_from_wire, rotate_token_command, use_join_token_command,
};
pub use ids::{gpu_uuid, request_id};
pub use job_life::{condition_from_wire, condition_to_wire};
pub use ledger::{ledger_from_wire, ledger_to_wire};
pub use pipeline::submit_pipeline_command;
pub use reported_topology::{reported_from_wire, reported_to_wire};
pub use request::{
    block_command, cancel_command, configure_queues_command, reset_breaker_command, resume_command,
    set_queue_command, set_topology_command, submit_command, suspend_command, unblock_command,
};
pub use request_key::request_key;
