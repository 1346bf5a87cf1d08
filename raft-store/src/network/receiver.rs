//! The receiving end of a snapshot transfer.

use std::io;
use std::sync::Arc;

use muster_proto::raft::v1 as proto;

use crate::codec::convert;
use crate::disk::SnapshotWrite;
use crate::snapshot::{SnapshotFile, SnapshotStore};
use crate::state_machine::DecodeError;
use crate::types::{SnapshotMeta, Vote};

/// Why a chunk was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChunkError {
    #[error("chunk at offset {found}, expected {expected}")]
    OutOfOrder { expected: u64, found: u64 },
    #[error(transparent)]
    Malformed(#[from] DecodeError),
    #[error("the snapshot could not be written: {0}")]
    Disk(#[from] io::Error),
}

/// A transfer that is complete.
pub(crate) struct Received {
    pub(crate) vote: Vote,
    pub(crate) meta: SnapshotMeta,
    pub(crate) file: SnapshotFile,
}

/// Takes chunks in order; a chunk at offset 0 starts anew.
pub(crate) struct SnapshotReceiver {
    snapshots: Arc<SnapshotStore>,
    current: Option<Transfer>,
}

struct Transfer {
    from: u64,
    file: SnapshotFile,
    offset: u64,
    writer: Box<dyn SnapshotWrite>,
}

impl SnapshotReceiver {
    pub(crate) fn new(snapshots: Arc<SnapshotStore>) -> Self {
        Self {
            snapshots,
            current: None,
        }
    }

    /// Takes a chunk; the last one gives the finished, still staged file.
    pub(crate) fn take(
        &mut self,
        from: u64,
        chunk: &proto::SnapshotChunk,
    ) -> Result<Option<Received>, ChunkError> {
        if crc32fast::hash(&chunk.data) != chunk.checksum {
            return Err(DecodeError::malformed("the checksum of a chunk does not match").into());
        }
        let meta = SnapshotMeta {
            last_log_id: convert::optional_log_id(chunk.last)?,
            last_membership: convert::stored_membership_from_proto(chunk.membership.clone())?,
        };
        let file = self.snapshots.file(meta.last_log_id.as_ref());
        let mut transfer = self.resume(from, file, chunk.offset)?;
        transfer.writer.write_all(&chunk.data)?;
        transfer.offset += chunk.data.len() as u64;
        if !chunk.done {
            self.current = Some(transfer);
            return Ok(None);
        }
        transfer.writer.finish()?;
        Ok(Some(Received {
            vote: convert::vote_from_proto(chunk.vote)?,
            meta,
            file: transfer.file,
        }))
    }

    fn resume(
        &mut self,
        from: u64,
        file: SnapshotFile,
        offset: u64,
    ) -> Result<Transfer, ChunkError> {
        if offset == 0 {
            let writer = self.snapshots.disk().create(&file.name)?;
            return Ok(Transfer {
                from,
                file,
                offset,
                writer,
            });
        }
        match self.current.take() {
            Some(transfer)
                if transfer.from == from
                    && transfer.file.name == file.name
                    && transfer.offset == offset =>
            {
                Ok(transfer)
            }
            other => Err(ChunkError::OutOfOrder {
                expected: other.map_or(0, |transfer| transfer.offset),
                found: offset,
            }),
        }
    }
}
