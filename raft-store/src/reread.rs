//! Every decoder by itself: bytes in, and out the bytes that this build writes for what it read.
//!
//! For whoever feeds them anything (`fuzz/`): a replica reads its disk and its peers through the same functions, and none may
//! panic, or take memory that no bytes stand for. Backups are read through [`crate::backup`].

use bytes::Bytes;
use muster_proto::raft::v1 as proto;
use prost::Message as _;

use crate::codec::{convert, frame, record};
use crate::network;
use crate::snapshot;
use crate::state_machine::{DecodeError, StateMachine};

/// A record of the log, with its frame.
///
/// # Errors
/// What is wrong with it.
pub fn log_record<M: StateMachine>(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let entry = record::decode::<M>(Bytes::copy_from_slice(bytes))?;
    Ok(record::encode(&entry))
}

/// The record of the vote that a replica gave, with its frame.
///
/// # Errors
/// What is wrong with it.
pub fn vote(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let stored: proto::Vote = frame::decode(Bytes::copy_from_slice(bytes))?;
    let vote = convert::vote_from_proto(Some(stored))?;
    Ok(frame::encode(&convert::vote_to_proto(&vote)))
}

/// A group's membership as headers of snapshots and backups have it, with the frame of a record.
///
/// # Errors
/// What is wrong with it.
pub fn membership(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let stored: proto::StoredMembership = frame::decode(Bytes::copy_from_slice(bytes))?;
    let membership = convert::stored_membership_from_proto(Some(stored))?;
    Ok(frame::encode(&convert::stored_membership_to_proto(
        &membership,
    )))
}

/// A file of a snapshot.
///
/// # Errors
/// What is wrong with it.
pub fn snapshot_file<M: StateMachine>(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    snapshot::reread::<M>(bytes)
}

/// What one replica asks of another.
///
/// # Errors
/// What is wrong with it.
pub fn peer_request<M: StateMachine>(bytes: &[u8]) -> Result<Vec<u8>, DecodeError> {
    let request = proto::PeerRequest::decode(bytes)
        .map_err(|error| DecodeError::malformed(error.to_string()))?;
    Ok(network::reread::<M>(request)?.encode_to_vec())
}
