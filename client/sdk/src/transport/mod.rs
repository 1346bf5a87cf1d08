//! Connections to replicas: discovery, retries and credentials.

pub(super) mod call;
pub(super) mod connections;
pub(super) mod credential;
pub(super) mod etcd;
pub(super) mod retry;
pub(super) mod roster;
