//! Conversions between the wire and the core.
//!
//! Input from the wire is checked here: every error names the field and the rule, before anything is
//! proposed. Output to the wire cannot fail. Conversions take ownership of messages that are consumed, so
//! that strings move instead of being copied.

mod access;
mod beat;
mod blocker;
pub(crate) mod claim;
mod container;
mod desired;
mod effect;
mod event;
mod execution;
mod field;
pub(crate) mod health;
mod host;
mod ids;
pub(crate) mod job;
pub(crate) mod job_life;
pub(crate) mod learnt;
pub(crate) mod ledger;
mod lifecycle;
mod outcome;
pub(crate) mod packed;
mod pipeline;
mod queue;
mod registration;
mod remedy;
mod request;
mod request_key;
mod scheduling;
mod spec;
mod topology;
mod twin;

pub use access::{
    add_join_token_command, add_user_command, join_tokens_to_wire, remove_user_command,
    revoke_join_token_command, role_from_wire, rotate_token_command, use_join_token_command,
    users_to_wire,
};
pub use field::InvalidField;
pub use health::{health_rules_to_wire, health_to_wire, would_block_to_wire};
pub use host::{gpu_to_wire, host_to_wire, queue_to_wire};
pub use ids::{gpu_uuid, request_id};
pub use job::{gpus_held, job_to_wire, unit_to_wire};
pub use pipeline::{pipeline_to_wire, pipeline_with_jobs, submit_pipeline_command};
pub use request::{
    block_command, cancel_command, configure_queues_command, reset_breaker_command, resume_command,
    set_health_rules_command, set_queue_command, set_topology_command, submit_command,
    suspend_command, unblock_command,
};

pub(crate) use field::{enumeration, required};
pub(crate) use job::port;
pub(crate) use twin::{Twin, twin_variants};
