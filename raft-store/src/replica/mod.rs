//! A running replica: start, interface, status and metrics.

pub(super) mod config;
pub(super) mod engine;
pub(super) mod environment;
pub(super) mod handle;
pub(super) mod identity;
pub(super) mod log_clock;
pub(super) mod open;
pub(super) mod status;
pub(super) mod telemetry;
pub(super) mod watcher;
