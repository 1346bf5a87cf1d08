//! Log entries as framed records, on disk and on the wire.

use bytes::Bytes;
use muster_proto::raft::v1 as proto;
use openraft::impls::EntryPayload;
use proto::log_record::Payload as Stored;

use crate::apply::batch::Batch;
use crate::apply::state_machine::{DecodeError, StateMachine};
use crate::storage::codec::{convert, frame};
use crate::types::{Entry, LogId};

/// Encodes an entry.
pub(crate) fn encode<M: StateMachine>(entry: &Entry<M>) -> Vec<u8> {
    let payload = match &entry.payload {
        EntryPayload::Blank => Stored::Blank(proto::Blank {}),
        EntryPayload::Normal(batch) => Stored::Batch(batch.encoded().clone()),
        EntryPayload::Membership(membership) => {
            Stored::Membership(convert::membership_to_proto(membership))
        }
    };
    frame::encode(&proto::LogRecord {
        id: Some(convert::log_id_to_proto(&entry.log_id)),
        payload: Some(payload),
    })
}

/// Decodes an entry and every command in it.
pub(crate) fn decode<M: StateMachine>(record: Bytes) -> Result<Entry<M>, DecodeError> {
    let record: proto::LogRecord = frame::decode(record)?;
    let log_id = id_of(&record)?;
    let payload = match record.payload {
        Some(Stored::Blank(proto::Blank {})) => EntryPayload::Blank,
        Some(Stored::Batch(encoded)) => EntryPayload::Normal(Batch::decode(encoded)?),
        Some(Stored::Membership(membership)) => {
            EntryPayload::Membership(convert::membership_from_proto(membership)?)
        }
        None => return Err(DecodeError::malformed("a log record has no payload")),
    };
    Ok(Entry { log_id, payload })
}

/// Decodes only the position of an entry.
pub(crate) fn decode_id(record: Bytes) -> Result<LogId, DecodeError> {
    id_of(&frame::decode::<proto::LogRecord>(record)?)
}

fn id_of(record: &proto::LogRecord) -> Result<LogId, DecodeError> {
    let id = record
        .id
        .ok_or_else(|| DecodeError::malformed("a log record has no position"))?;
    convert::log_id_from_proto(id)
}
