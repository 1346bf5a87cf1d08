//! Replicas on real disks and on in-memory disks and networks, through the crate's public interface.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
mod damaged_log;
mod full_disk;
mod group;
mod membership;
mod observer;
mod offline_log;
mod partitions;
mod recovery;
mod refusals;
mod state_history;
mod support;
