//! Hosts and GPUs: registration, phases, health and blocks.

pub(super) mod blocks;
pub(super) mod gpus;
pub(super) mod health;
pub(super) mod host_health;
pub(super) mod hosts;
pub(super) mod learning;
