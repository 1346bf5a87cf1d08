//! The wire contract (`schema/`), the code generated from it, and the conversions to and from the core.
//!
//! The comments in the schema files are the interface's documentation.
#![forbid(unsafe_code)]

pub mod raft;

/// Package `muster.v1`: what clients, workers and replicas say to each other.
#[expect(
    clippy::all,
    reason = "generated from schema/muster/v1, whose comments document the messages"
)]
pub mod v1 {
    tonic::include_proto!("muster.v1");
}

/// Every schema file in encoded form (`google.protobuf.FileDescriptorSet`), for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/muster.bin"));
