//! The receiving end of a snapshot transfer.

use std::io;
use std::sync::Arc;

use muster_proto::raft::v1 as proto;

use crate::apply::state_machine::DecodeError;
use crate::storage::codec::convert;
use crate::storage::disk::SnapshotWrite;
use crate::storage::snapshot::{SnapshotFile, SnapshotStore};
use crate::types::{LogId, SnapshotMeta, Vote};

/// Error of a rejected chunk.
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

/// Completed transfer.
pub(crate) struct Received {
    pub(crate) vote: Vote,
    pub(crate) meta: SnapshotMeta,
    pub(crate) file: SnapshotFile,
}

/// Accepts chunks in order; a chunk at offset 0 restarts the transfer, in a new file. While a snapshot is
/// being installed no other is accepted: they would only queue up behind it.
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

    /// Accepts a chunk; the last one returns the finished, still staged file, and no other transfer is
    /// accepted until [`SnapshotReceiver::installed`].
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
        // Once openraft installs it, any defect would stop this replica. On rejection the sender looks for
        // another snapshot.
        let covered = self.snapshots.check(&transfer.file)?;
        if covered.last_log_id != transfer.last {
            let detail = "the snapshot covers a position other than the announced one";
            return Err(DecodeError::malformed(detail).into());
        }
        self.installing = true;
        Ok(Some(Received {
            vote,
            meta,
            file: transfer.file,
        }))
    }

    /// Reports that the snapshot returned last was installed or permanently rejected.
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
    use crate::apply::shared::Applied;
    use crate::apply::state_machine::StateMachine as _;
    use crate::counter::{Add, Counter};
    use crate::storage::disk::SnapshotDirectory;
    use crate::storage::memory::MemorySnapshots;
    use crate::types::{LeaderId, StoredMembership};

    const LEADER: LeaderId = LeaderId {
        term: 2,
        node_id: 1,
    };

    fn receiver(folder: &Path) -> (Arc<SnapshotStore>, SnapshotReceiver) {
        let disk = Arc::new(SnapshotDirectory::open(folder).unwrap());
        let store = Arc::new(SnapshotStore::new(disk, "test".to_owned()));
        (Arc::clone(&store), SnapshotReceiver::new(store))
    }

    /// Snapshot file of a state with one name, up to the log index.
    fn snapshot(name: &str, index: u64) -> Vec<u8> {
        let disk = MemorySnapshots::new();
        let mut state = Counter::default();
        state.apply(1_700_000_000_000, &Add::new(name, 1));
        let applied = Applied {
            state,
            last: Some(LogId::new(LEADER, index)),
            membership: StoredMembership::default(),
        };
        let store = SnapshotStore::new(Arc::new(disk.clone()), "test".to_owned());
        let (_, file) = store.write(&applied).unwrap();
        disk.bytes(&file.name).unwrap()
    }

    /// A chunk of a snapshot that is announced to cover the log up to index 9.
    fn chunk(offset: u64, data: &[u8], done: bool) -> proto::SnapshotChunk {
        let vote = Vote {
            leader_id: LEADER,
            committed: true,
        };
        proto::SnapshotChunk {
            vote: Some(convert::vote_to_proto(&vote)),
            last: Some(convert::log_id_to_proto(&LogId::new(LEADER, 9))),
            membership: Some(convert::stored_membership_to_proto(
                &StoredMembership::default(),
            )),
            offset,
            data: Bytes::copy_from_slice(data),
            checksum: crc32fast::hash(data),
            done,
        }
    }

    /// Sends the first bytes of a transfer, with more to come.
    fn begin(receiver: &mut SnapshotReceiver, from: u64, data: &[u8]) {
        let taken = receiver.take(from, &chunk(0, data, false)).unwrap();
        assert!(taken.is_none());
    }

    fn content(file: &SnapshotFile) -> Vec<u8> {
        let mut bytes = Vec::new();
        file.open().unwrap().read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn files(folder: &Path) -> usize {
        std::fs::read_dir(folder).unwrap().count()
    }

    #[test]
    fn a_transfer_of_the_same_position_does_not_touch_the_installed_file() {
        let folder = TempDir::new().unwrap();
        let (store, mut receiver) = receiver(folder.path());
        let (one, other) = (snapshot("one", 9), snapshot("other", 9));
        begin(&mut receiver, 1, &one[..3]);
        let rest = chunk(3, &one[3..], true);
        let first = receiver.take(1, &rest).unwrap().unwrap();

        let busy = receiver.take(2, &chunk(0, &other[..3], false));
        assert!(matches!(busy, Err(ChunkError::Busy)));
        receiver.installed();
        // openraft may still hold the first one.
        begin(&mut receiver, 2, &other[..3]);
        assert_eq!(content(&first.file), one);
        store.publish(&first.file).unwrap();
        let rest = chunk(3, &other[3..], true);
        let second = receiver.take(2, &rest).unwrap().unwrap();
        assert_eq!(content(&first.file), one);
        assert_eq!(content(&second.file), other);
        store.publish(&second.file).unwrap();
        assert_eq!(content(&store.newest().unwrap().unwrap()), other);
    }

    #[test]
    fn a_received_snapshot_that_is_not_published_is_removed() {
        let folder = TempDir::new().unwrap();
        let (store, mut receiver) = receiver(folder.path());
        let whole = snapshot("one", 9);
        begin(&mut receiver, 1, &whole[..3]);
        // Another leader restarts the transfer; then a chunk is out of order.
        begin(&mut receiver, 2, &whole[..5]);
        assert_eq!(files(folder.path()), 1);
        let lost = receiver.take(1, &chunk(3, &whole[3..], true));
        assert!(matches!(lost, Err(ChunkError::OutOfOrder { .. })));
        assert_eq!(files(folder.path()), 0);

        // openraft rejects a snapshot that it does not need.
        let all = chunk(0, &whole, true);
        let refused = receiver.take(1, &all).unwrap().unwrap();
        assert_eq!(files(folder.path()), 1);
        drop(refused);
        receiver.installed();
        assert_eq!(files(folder.path()), 0);

        let kept = receiver.take(1, &all).unwrap().unwrap();
        store.publish(&kept.file).unwrap();
        drop(kept);
        assert_eq!(content(&store.newest().unwrap().unwrap()), whole);
    }

    #[test]
    fn a_snapshot_damaged_at_its_sender_is_refused_and_the_next_one_taken() {
        let folder = TempDir::new().unwrap();
        let (_, mut receiver) = receiver(folder.path());
        let whole = snapshot("one", 9);
        for position in 0..whole.len() {
            let mut decayed = whole.clone();
            decayed[position] ^= 1 << (position % 8);
            let taken = receiver.take(1, &chunk(0, &decayed, true));
            assert!(
                matches!(taken, Err(ChunkError::Malformed(_))),
                "at {position}"
            );
        }
        let cut = receiver.take(1, &chunk(0, &whole[..whole.len() - 1], true));
        assert!(matches!(cut, Err(ChunkError::Malformed(_))));
        let elsewhere = receiver.take(1, &chunk(0, &snapshot("one", 8), true));
        assert!(matches!(elsewhere, Err(ChunkError::Malformed(_))));
        assert_eq!(files(folder.path()), 0);
        assert!(receiver.take(1, &chunk(0, &whole, true)).unwrap().is_some());
    }
}
