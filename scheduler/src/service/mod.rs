//! gRPC services: one file each, and shared code.
//!
//! Every replica answers. Writes are forwarded to the leader once, never twice; reads are linearizable unless
//! the caller asks for a stale one; watches are served from the local state.

pub(crate) mod admin;
mod cluster;
mod context;
mod gate;
mod jobs;
mod peer;
mod read;
mod replies;
mod watch;
mod worker;
mod write;

pub(crate) use admin::Admin;
pub(crate) use cluster::Cluster;
pub(crate) use cluster::worker_join::Joining;
pub(crate) use context::{Context, ContextParts};
pub(crate) use gate::{GateLayer, Provider, begin_counting};
pub(crate) use jobs::Jobs;
pub(crate) use peer::Peers;
pub(crate) use peer::peer_pool::{Addresses, GrpcPeerLinks, PeerPool};
pub(crate) use watch::Watches;
pub(crate) use worker::Workers;
pub(crate) use write::forward::Forwarder;
pub(crate) use write::leaders::Leaders;
pub use write::{propose_status, set_health_rules_command};
