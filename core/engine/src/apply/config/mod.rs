//! Configuration: queues, topology, guarantees and usage history.

pub(super) mod capacity;
pub(super) mod configuration;
pub(super) mod history;
pub(super) mod queues;
