//! Disks and a network in memory, for fast tests and for the simulation.

mod log;
mod network;
mod snapshots;

pub use log::{MemoryLog, SyncSchedule};
pub use network::MemoryNetwork;
pub use snapshots::MemorySnapshots;
