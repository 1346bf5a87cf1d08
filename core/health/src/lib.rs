//! Health of GPUs, adapters and hosts: what is seen, whose fault it is, what is blocked, and how it comes back.
//!
//! Pure like all of the core, and used in three places (`docs/adr/0017`): workers read [`kernel_log`] and evaluate
//! thresholds ([`evaluate::Readings`]) by the replicated [`rules`]; the leader weighs what needs more than one host, job or
//! day ([`attribution`], [`lemons`]); `apply` has the last word through [`book::Book`], which holds all that is replicated and
//! asks [`component`]'s transitions and the [`guard_rails`]. Whole numbers only, and time comes in.
#![forbid(unsafe_code)]

pub mod attribution;
pub mod book;
pub mod checks;
pub mod component;
pub mod evaluate;
pub mod flaps;
pub mod guard_rails;
pub mod kernel_log;
pub mod lemons;
pub mod outbox;
pub mod rules;
