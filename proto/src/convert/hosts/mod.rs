//! Messages of hosts and of the worker protocol.

pub(super) mod desired;
pub(super) mod heartbeat;
pub(super) mod host;
pub(super) mod registration;
pub(super) mod reported_topology;
