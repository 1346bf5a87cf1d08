//! Conversions between the wire and the types of `muster-model`.
//!
//! Input from the wire is checked here: every error names the field and the rule, before anything is
//! proposed. Output to the wire cannot fail. Conversions take ownership of messages that are consumed, so
//! that strings move instead of being copied.

mod access;
mod conversion;
mod event;
mod health;
mod hosts;
mod ids;
mod jobs;
mod queue;
mod request;
mod request_key;
mod topology;

pub use access::{
    add_join_token_command, add_user_command, remove_user_command, revoke_join_token_command,
    role_from_wire, rotate_token_command, use_join_token_command,
};
pub use hosts::reported_topology::{reported_from_wire, reported_to_wire};
pub use ids::{gpu_uuid, request_id};
pub use jobs::job_life::{condition_from_wire, condition_to_wire};
pub use jobs::ledger::{ledger_from_wire, ledger_to_wire};
pub use jobs::pipeline::submit_pipeline_command;
pub use request::{
    block_command, cancel_command, configure_queues_command, reset_breaker_command, resume_command,
    set_queue_command, set_topology_command, submit_command, suspend_command, unblock_command,
};
pub use request_key::request_key;
