//! What the agent's tests share.

pub(crate) mod leader;

pub(crate) use muster_worker::supervisor::testing::{
    PATIENCE_MS, eventually, is_gone, kill_host, script,
};

/// The binary that plays `muster`.
pub(crate) const FIXTURE: &str = env!("CARGO_BIN_EXE_muster-worker-fixture");
