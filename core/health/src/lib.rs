//! Health of GPUs, adapters and hosts: detection, attribution, blocks and recovery.
//!
//! Pure like all of the core, and used in three places (`docs/adr/0017`): workers read [`kernel_log`] and
//! evaluate thresholds ([`evaluate::Readings`]) by the replicated [`rules`]; the leader evaluates what needs
//! more than one host, job or day ([`attribution`], [`lemons`]); `apply` decides through [`state::HealthState`], the
//! replicated health state, which consults [`component`]'s transitions and the [`guard_rails`]. Integer
//! arithmetic only, and time is an input.
#![forbid(unsafe_code)]
#![deny(clippy::float_arithmetic)]

pub mod attribution;
pub mod checks;
pub mod component;
pub mod evaluate;
pub mod flap_history;
pub mod guard_rails;
pub mod kernel_log;
pub mod lemons;
pub mod outbox;
pub mod rules;
pub mod state;
