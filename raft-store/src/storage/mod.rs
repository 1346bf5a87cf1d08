//! Log and snapshots on disk or in memory, and their encoding.

pub mod codec;
pub mod disk;
pub(super) mod log_store;
pub mod memory;
pub(super) mod snapshot;
