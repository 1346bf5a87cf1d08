//! Methods of the client, by service.

pub(super) mod admin;
pub(super) mod audit;
pub(super) mod backup;
pub(super) mod cluster;
pub(super) mod debug;
pub(super) mod export;
pub(super) mod jobs;
pub(super) mod join_tokens;
pub(super) mod pipelines;
pub(super) mod users;
