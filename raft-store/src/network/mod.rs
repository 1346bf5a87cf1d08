//! Communication between replicas: messages, a transport trait, and its gRPC implementation.

mod client;
mod convert;
mod data_acceptance;
mod grpc_client;
mod grpc_server;
mod receiver;
mod server;
mod transport;

pub(crate) use client::Network;
pub(crate) use convert::reread;
pub(crate) use data_acceptance::DataAcceptance;
pub use data_acceptance::Removal;
pub use grpc_client::GrpcTransport;
pub use grpc_server::{RaftServer, raft_service};
pub(crate) use receiver::SnapshotReceiver;
pub(crate) use server::{Server, ServerIdentity};
pub use transport::{Transport, TransportError, stream_by_calls};

/// Longest accepted message between replicas, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
