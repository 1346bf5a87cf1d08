//! The receiving end of a snapshot transfer.

use std::io;
use std::sync::Arc;

use muster_proto::raft::v1 as proto;

use crate::codec::convert;
use crate::disk::SnapshotWrite;
use crate::snapshot::{SnapshotFile, SnapshotStore};
use crate::state_machine::DecodeError;
use crate::types::{LogId, SnapshotMeta, Vote};

/// Why a chunk was not taken.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChunkError {
    #[error("another snapshot is being installed")]
    Busy,
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

/// Takes chunks in order; a chunk at offset 0 starts anew, in a file of its own. While a snapshot
/// is installed no other is taken: they would only pile up behind it.
pub(crate) struct SnapshotReceiver {
    snapshots: Arc<SnapshotStore>,
    current: Option<Transfer>,
    installing: bool,
}

struct Transfer {
    from: u64,
    last: Option<LogId>,
    file: SnapshotFile,
    offset: u64,
    writer: Box<dyn SnapshotWrite>,
}

impl SnapshotReceiver {
    pub(crate) fn new(snapshots: Arc<SnapshotStore>) -> Self {
        Self {
            snapshots,
            current: None,
            installing: false,
        }
    }

    /// Takes a chunk; the last one gives the finished, still staged file, and no other transfer is
    /// taken until [`SnapshotReceiver::installed`].
    pub(crate) fn take(
        &mut self,
        from: u64,
        chunk: &proto::SnapshotChunk,
    ) -> Result<Option<Received>, ChunkError> {
        if self.installing {
            return Err(ChunkError::Busy);
        }
        if crc32fast::hash(&chunk.data) != chunk.checksum {
            return Err(DecodeError::malformed("the checksum of a chunk does not match").into());
        }
        let vote = convert::vote_from_proto(chunk.vote)?;
        let meta = SnapshotMeta {
            last_log_id: convert::optional_log_id(chunk.last)?,
            last_membership: convert::stored_membership_from_proto(chunk.membership.clone())?,
        };
        let mut transfer = self.resume(from, meta.last_log_id, chunk.offset)?;
        transfer.writer.write_all(&chunk.data)?;
        transfer.offset += chunk.data.len() as u64;
        if !chunk.done {
            self.current = Some(transfer);
            return Ok(None);
        }
        transfer.writer.finish()?;
        self.installing = true;
        Ok(Some(Received {
            vote,
            meta,
            file: transfer.file,
        }))
    }

    /// The snapshot given out last is installed, or refused for good.
    pub(crate) fn installed(&mut self) {
        self.installing = false;
    }

    fn resume(
        &mut self,
        from: u64,
        last: Option<LogId>,
        offset: u64,
    ) -> Result<Transfer, ChunkError> {
        let current = self.current.take();
        if offset == 0 {
            let (file, writer) = self.snapshots.create(last.as_ref())?;
            return Ok(Transfer {
                from,
                last,
                file,
                offset,
                writer,
            });
        }
        match current {
            Some(transfer)
                if transfer.from == from && transfer.last == last && transfer.offset == offset =>
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::io::Read as _;
    use std::path::Path;

    use bytes::Bytes;
    use tempfile::TempDir;

    use super::*;
    use crate::disk::SnapshotDirectory;
    use crate::types::{LeaderId, StoredMembership};

    fn receiver(folder: &Path) -> (Arc<SnapshotStore>, SnapshotReceiver) {
        let disk = Arc::new(SnapshotDirectory::open(folder).unwrap());
        let store = Arc::new(SnapshotStore::new(disk, "test".to_owned()));
        (Arc::clone(&store), SnapshotReceiver::new(store))
    }

    /// A part of a snapshot that always covers the same position.
    fn chunk(offset: u64, data: &'static [u8], done: bool) -> proto::SnapshotChunk {
        let leader_id = LeaderId {
            term: 2,
            node_id: 1,
        };
        let vote = Vote {
            leader_id,
            committed: true,
        };
        proto::SnapshotChunk {
            vote: Some(convert::vote_to_proto(&vote)),
            last: Some(convert::log_id_to_proto(&LogId::new(leader_id, 9))),
            membership: Some(convert::stored_membership_to_proto(
                &StoredMembership::default(),
            )),
            offset,
            data: Bytes::from_static(data),
            checksum: crc32fast::hash(data),
            done,
        }
    }

    /// Takes the first chunk of a transfer, with more to come.
    fn begin(receiver: &mut SnapshotReceiver, from: u64, data: &'static [u8]) {
        let taken = receiver.take(from, &chunk(0, data, false)).unwrap();
        assert!(taken.is_none());
    }

    fn content(file: &SnapshotFile) -> String {
        let mut text = String::new();
        file.open().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    fn files(folder: &Path) -> usize {
        std::fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn a_transfer_of_the_same_position_leaves_the_file_that_is_installed_alone() {
        let folder = TempDir::new().unwrap();
        let (store, mut receiver) = receiver(folder.path());
        begin(&mut receiver, 1, b"fir");
        let first = receiver.take(1, &chunk(3, b"st", true)).unwrap().unwrap();

        let busy = receiver.take(2, &chunk(0, b"sec", false));
        assert!(matches!(busy, Err(ChunkError::Busy)));
        receiver.installed();
        // openraft may still hold the first one.
        begin(&mut receiver, 2, b"sec");
        assert_eq!(content(&first.file), "first");
        store.publish(&first.file).unwrap();
        let second = receiver.take(2, &chunk(3, b"ond", true)).unwrap().unwrap();
        assert_eq!(content(&first.file), "first");
        assert_eq!(content(&second.file), "second");
        store.publish(&second.file).unwrap();
        assert_eq!(content(&store.newest().unwrap().unwrap()), "second");
    }

    #[test]
    fn what_is_not_published_is_removed() {
        let folder = TempDir::new().unwrap();
        let (store, mut receiver) = receiver(folder.path());
        begin(&mut receiver, 1, b"fir");
        // Another leader begins anew; then a chunk is out of order.
        begin(&mut receiver, 2, b"sec");
        assert_eq!(files(folder.path()), 1);
        let lost = receiver.take(1, &chunk(3, b"st", true));
        assert!(matches!(lost, Err(ChunkError::OutOfOrder { .. })));
        assert_eq!(files(folder.path()), 0);

        // openraft refuses a snapshot that it does not need.
        let refused = receiver.take(1, &chunk(0, b"all", true)).unwrap().unwrap();
        assert_eq!(files(folder.path()), 1);
        drop(refused);
        receiver.installed();
        assert_eq!(files(folder.path()), 0);

        let kept = receiver.take(1, &chunk(0, b"all", true)).unwrap().unwrap();
        store.publish(&kept.file).unwrap();
        drop(kept);
        assert_eq!(content(&store.newest().unwrap().unwrap()), "all");
    }
}
