//! openraft's log storage over a [`LogDisk`].
//!
//! `append` writes and returns; openraft is notified of durability through its callback when the disk has
//! synced. Recent entries stay decoded in a ring, from which replication and apply read.

mod check;
mod reader;
mod ring;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use muster_proto::raft::v1 as proto;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{OptionalSend, RaftLogReader};
use tokio::sync::oneshot;

pub(crate) use reader::LogReader;
use ring::Ring;

use crate::apply::state_machine::{DecodeError, StateMachine};
use crate::error::OpenError;
use crate::sim::Runtime;
use crate::storage::codec::{convert, frame, record};
use crate::storage::disk::{LogChange, LogDisk, MetaKey};
use crate::types::{Entry, LogId, Types, Vote};

/// Limits of the log store's memory and reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogLimits {
    /// Entries kept decoded.
    pub(crate) cached_entries_max: usize,
    /// Bytes of entries kept decoded.
    pub(crate) cached_bytes_max: usize,
    /// Bytes of entries read for one message.
    pub(crate) read_bytes_max: usize,
}

/// State shared by writer and readers.
struct Shared<M: StateMachine> {
    disk: Arc<dyn LogDisk>,
    limits: LogLimits,
    tail: Mutex<Tail<M>>,
}

/// The log's bounds, vote and recent entries.
struct Tail<M: StateMachine> {
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    last: Option<LogId>,
    ring: Ring<M>,
}

impl<M: StateMachine> Shared<M> {
    /// The lock is held for memory operations only; a panic inside leaves no partial update.
    fn tail(&self) -> MutexGuard<'_, Tail<M>> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The log of one replica.
pub(crate) struct LogStore<M: StateMachine> {
    shared: Arc<Shared<M>>,
}

impl<M: StateMachine> LogStore<M> {
    /// Reads the log's bounds and checks every small record.
    pub(crate) fn open(disk: Arc<dyn LogDisk>, limits: LogLimits) -> Result<Self, OpenError> {
        let vote = read_meta::<proto::Vote, _>(&*disk, MetaKey::Vote, |vote| {
            convert::vote_from_proto(Some(vote))
        })?;
        let committed =
            read_meta::<proto::Committed, _>(&*disk, MetaKey::Committed, |committed| {
                convert::optional_log_id(committed.id)
            })?;
        let purged = read_meta::<proto::Purged, _>(&*disk, MetaKey::Purged, |purged| {
            convert::optional_log_id(purged.id)
        })?
        .flatten();
        let last = read_last(&*disk)?;
        if let Some(last) = last {
            let from = purged.map_or(0, |id| id.index + 1);
            check::check_entries(&*disk, from, last.index)?;
            check::check_vote(vote.as_ref(), last)?;
        }
        let tail = Tail {
            vote,
            committed: committed.flatten(),
            purged,
            last: last.or(purged),
            ring: Ring::new(limits.cached_entries_max, limits.cached_bytes_max),
        };
        Ok(Self {
            shared: Arc::new(Shared {
                disk,
                limits,
                tail: Mutex::new(tail),
            }),
        })
    }

    async fn sync(&self) -> io::Result<()> {
        let (sender, synced) = oneshot::channel();
        self.shared.disk.sync(Box::new(move |result| {
            // The waiter may have been dropped with its replica.
            drop(sender.send(result));
        }));
        synced
            .await
            .unwrap_or_else(|_| Err(io::Error::other("the log disk is closed")))
    }

    async fn write_synced(&self, changes: Vec<LogChange>) -> io::Result<()> {
        self.shared.disk.write(changes)?;
        self.sync().await
    }
}

fn read_meta<T, V>(
    disk: &dyn LogDisk,
    key: MetaKey,
    convert: impl FnOnce(T) -> Result<V, DecodeError>,
) -> Result<Option<V>, OpenError>
where
    T: prost::Message + Default,
{
    let read = disk.read_meta(key).map_err(|source| OpenError::Disk {
        operation: format!("reading the log's record {:?}", key.name()),
        source,
    })?;
    let Some(bytes) = read else { return Ok(None) };
    frame::decode(Bytes::from(bytes))
        .and_then(convert)
        .map(Some)
        .map_err(|error| {
            OpenError::from_decode(format!("the log's record {:?}", key.name()), error)
        })
}

fn read_last(disk: &dyn LogDisk) -> Result<Option<LogId>, OpenError> {
    let last = disk.last_entry().map_err(|source| OpenError::Disk {
        operation: "reading the last log entry".to_owned(),
        source,
    })?;
    let Some((index, bytes)) = last else {
        return Ok(None);
    };
    record::decode_id(Bytes::from(bytes))
        .map(Some)
        .map_err(|error| OpenError::from_decode(format!("log entry {index}"), error))
}

fn put_meta(key: MetaKey, message: &impl prost::Message) -> LogChange {
    LogChange::PutMeta {
        key,
        record: frame::encode(message),
    }
}

impl<M: StateMachine, R: Runtime> RaftLogReader<Types<M, R>> for LogStore<M> {
    async fn try_get_log_entries<RB>(&mut self, range: RB) -> Result<Vec<Entry<M>>, io::Error>
    where
        RB: std::ops::RangeBounds<u64> + Clone + std::fmt::Debug + OptionalSend,
    {
        let mut reader = LogReader::new(Arc::clone(&self.shared));
        RaftLogReader::<Types<M, R>>::try_get_log_entries(&mut reader, range).await
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.shared.tail().vote)
    }
}

impl<M: StateMachine, R: Runtime> RaftLogStorage<Types<M, R>> for LogStore<M> {
    type LogReader = LogReader<M>;

    async fn get_log_state(&mut self) -> Result<LogState<Types<M, R>>, io::Error> {
        let tail = self.shared.tail();
        Ok(LogState {
            last_purged_log_id: tail.purged,
            last_log_id: tail.last,
        })
    }

    async fn get_log_reader(&mut self) -> Self::LogReader {
        LogReader::new(Arc::clone(&self.shared))
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let change = put_meta(MetaKey::Vote, &convert::vote_to_proto(vote));
        self.write_synced(vec![change]).await?;
        self.shared.tail().vote = Some(*vote);
        Ok(())
    }

    /// Not synced: an older position after a crash only means that more entries wait for the leader's
    /// confirmation before they are applied again.
    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        let message = proto::Committed {
            id: committed.as_ref().map(convert::log_id_to_proto),
        };
        self.shared
            .disk
            .write(vec![put_meta(MetaKey::Committed, &message)])?;
        self.shared.tail().committed = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.shared.tail().committed)
    }

    async fn append<I>(
        &mut self,
        entries: I,
        callback: IOFlushed<Types<M, R>>,
    ) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = Entry<M>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut changes = Vec::new();
        let mut appended = Vec::new();
        for entry in entries {
            let record = record::encode(&entry);
            appended.push((entry.clone(), record.len()));
            changes.push(LogChange::PutEntry {
                index: entry.log_id.index,
                record,
            });
        }
        self.shared.disk.write(changes)?;
        {
            let mut tail = self.shared.tail();
            for (entry, bytes) in appended {
                tail.last = Some(entry.log_id);
                tail.ring.push(entry, bytes);
            }
        }
        self.shared
            .disk
            .sync(Box::new(move |result| callback.io_completed(result)));
        Ok(())
    }

    async fn truncate_after(&mut self, last: Option<LogId>) -> Result<(), io::Error> {
        let from = last.map_or(0, |id| id.index + 1);
        let change = LogChange::RemoveEntries { from, to: u64::MAX };
        {
            // Readers must not find removed entries in the ring once they are gone from the disk.
            let mut tail = self.shared.tail();
            tail.ring.truncate(from);
            tail.last = tail.last.min(last);
        }
        self.write_synced(vec![change]).await
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        let changes = vec![
            put_meta(
                MetaKey::Purged,
                &proto::Purged {
                    id: Some(convert::log_id_to_proto(&upto)),
                },
            ),
            LogChange::RemoveEntries {
                from: 0,
                to: upto.index + 1,
            },
        ];
        {
            let mut tail = self.shared.tail();
            tail.purged = tail.purged.max(Some(upto));
            tail.last = tail.last.max(Some(upto));
            tail.ring.purge(upto.index);
        }
        self.shared.disk.write(changes)
    }
}
