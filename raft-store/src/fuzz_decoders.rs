//! Standalone decoders for fuzzing (`fuzz/`): each takes bytes and returns what this build encodes for the
//! decoded value.
//!
//! A replica reads its disk and its peers through the same functions; none may panic, or allocate memory
//! beyond the bytes present. Backups are read through [`crate::recovery::backup`].

use bytes::Bytes;
use muster_proto::raft::v1 as proto;
use prost::Message as _;

use crate::apply::state_machine::{DecodeError, StateMachine};
use crate::network;
use crate::storage::codec::{convert, frame, record};
use crate::storage::snapshot;

/// Re-encodes a framed log record.
///
/// # Errors
/// [`DecodeError`] of invalid bytes.
pub fn log_record<M: StateMachine>(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let entry = record::decode::<M>(Bytes::copy_from_slice(bytes))?;
    Ok(record::encode(&entry))
}

/// Re-encodes the framed record of a cast vote.
///
/// # Errors
/// [`DecodeError`] of invalid bytes.
pub fn vote(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let stored: proto::Vote = frame::decode(Bytes::copy_from_slice(bytes))?;
    let vote = convert::vote_from_proto(Some(stored))?;
    Ok(frame::encode(&convert::vote_to_proto(&vote)))
}

/// Re-encodes a group's membership, as in headers of snapshots and backups, framed like a record.
///
/// # Errors
/// [`DecodeError`] of invalid bytes.
pub fn membership(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let stored: proto::StoredMembership = frame::decode(Bytes::copy_from_slice(bytes))?;
    let membership = convert::stored_membership_from_proto(Some(stored))?;
    Ok(frame::encode(&convert::stored_membership_to_proto(
        &membership,
    )))
}

/// Re-encodes a snapshot file.
///
/// # Errors
/// [`DecodeError`] of invalid bytes.
pub fn snapshot_file<M: StateMachine>(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    snapshot::reread::<M>(bytes)
}

/// Re-encodes a request from another replica.
///
/// # Errors
/// [`DecodeError`] of invalid bytes.
pub fn peer_request<M: StateMachine>(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let request = proto::PeerRequest::decode(bytes)
        .map_err(|error| DecodeError::malformed(error.to_string()))?;
    Ok(network::reread::<M>(request)?.encode_to_vec())
}
