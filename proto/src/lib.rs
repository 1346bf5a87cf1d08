//! The wire contract (`schema/`), the code generated from it, and its conversions to and from `muster-model`.
//!
//! - [`v1`]: the messages and services; the comments in the schema files are the interface's documentation.
//! - [`convert`]: wire to core and back, with defaults and limits.
//! - [`field`]: what conversions are built from.
//! - [`raft`]: messages between replicas of one group.
//! - [`status`]: errors as gRPC statuses with `google.rpc` details.
#![forbid(unsafe_code)]

mod clip;
pub mod convert;
pub mod field;
pub mod raft;
pub mod status;
mod writes;

/// Header of every answer of a replica: the log index of its current membership. A higher index means that
/// the replicas have changed.
pub const MEMBERSHIP_HEADER: &str = "muster-membership";

/// Package `muster.v1`: messages between clients, workers and replicas.
#[expect(
    clippy::all,
    clippy::allow_attributes,
    reason = "generated from schema/muster/v1, whose comments document the messages"
)]
pub mod v1 {
    tonic::include_proto!("muster.v1");
}

/// The schema files of this crate in encoded form (`google.protobuf.FileDescriptorSet`), for gRPC reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/muster.bin"));
