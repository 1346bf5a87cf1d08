//! gRPC services: one file each, and shared code.
//!
//! Every replica answers. Writes are forwarded to the leader once, never twice; reads are linearizable unless
//! the caller asks for a stale one; watches are served from the local state.

mod addressee;
mod admin;
mod audit;
pub(crate) mod backup;
mod cluster;
mod configuration;
mod context;
mod deadline;
mod debug;
mod exec;
mod exec_input;
mod explain;
mod export;
mod forward;
mod gate;
mod health;
mod impact;
mod jobs;
mod joining;
mod kept_answers;
mod leaders;
mod local_write;
mod log_source;
mod logs;
mod page;
mod past;
mod peer;
mod peer_pool;
mod pipelines;
mod progress;
mod read;
mod replicas;
mod replies;
mod standings;
mod stopping;
mod unanswered;
mod watch;
mod while_allowed;
mod worker;
mod write;

pub(crate) use admin::Admin;
pub(crate) use cluster::Cluster;
pub(crate) use context::{Context, ContextParts};
pub(crate) use forward::Forwarder;
pub(crate) use gate::{GateLayer, Provider, begin_counting};
pub(crate) use jobs::Jobs;
pub(crate) use joining::Joining;
pub(crate) use leaders::Leaders;
pub(crate) use peer::Peers;
pub(crate) use peer_pool::{Addresses, GrpcPeerLinks, PeerPool};
pub(crate) use watch::Watches;
pub(crate) use worker::Workers;
pub use write::propose_status;
