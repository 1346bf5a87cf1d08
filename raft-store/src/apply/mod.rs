//! The replicated state machine: batches of commands, their application, and the comparison of hashes.

pub(super) mod applier;
pub(super) mod batch;
pub(super) mod batcher;
pub(super) mod hash_ledger;
pub(super) mod machine;
pub(super) mod shared;
pub(super) mod state_machine;
