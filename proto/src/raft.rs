//! Messages between replicas and records on a replica's disk (`muster.raft.v1`).
//!
//! Generated from `schema/muster/raft/v1`; the comments of the schema are the documentation.

/// Version 1.
#[expect(
    missing_docs,
    clippy::all,
    clippy::allow_attributes,
    reason = "generated code; the schema holds the comments"
)]
pub mod v1 {
    tonic::include_proto!("muster.raft.v1");
}
