//! Shared parts of the agent's tests.

pub(crate) mod leader;

pub(crate) use muster_worker::supervisor::testing::{
    TIMEOUT_MS, eventually, is_gone, kill_host, script,
};

/// The stand-in for the `muster` binary.
pub(crate) const FIXTURE: &str = env!("CARGO_BIN_EXE_muster-worker-fixture");
