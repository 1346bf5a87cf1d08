//! Communication between replicas: messages, a transport trait, and its gRPC implementation.

mod client;
mod convert;
mod grpc_client;
mod grpc_server;
mod receiver;
mod server;
mod standing;
mod transport;

pub(crate) use client::Network;
pub(crate) use convert::reread;
pub use grpc_client::GrpcTransport;
pub use grpc_server::{RaftServer, raft_service};
pub(crate) use receiver::SnapshotReceiver;
pub(crate) use server::{Server, ServerIdentity};
pub use standing::Removal;
pub(crate) use standing::Standing;
pub use transport::{Transport, TransportError, stream_by_calls};

/// Longest accepted message between replicas, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
