//! Offline reader of the log and state of a stopped replica, to establish the true history.
//!
//! The log is the one account of a group's history that no bug of the application can embellish: replaying
//! its entries must reproduce what the replicas answered, reported and did.

use std::io;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use muster_proto::raft::v1 as proto;
use openraft::impls::EntryPayload;
use xxhash_rust::xxh3::xxh3_64;

use crate::apply::shared::Applied;
use crate::apply::state_machine::{DecodeError, StateMachine};
use crate::error::OpenError;
use crate::replica::identity::DirectoryLock;
use crate::replica::open::{LOG_FOLDER, SNAPSHOT_FOLDER};
use crate::storage::codec::{convert, frame, record};
use crate::storage::disk::{LogDisk, MetaKey, RocksLog, SnapshotDirectory};
use crate::storage::snapshot::SnapshotStore;
use crate::types::Entry;

/// Bytes of log read at a time.
const PART_BYTES: usize = 8 * 1024 * 1024;

/// An entry of the log.
#[derive(Debug, Clone)]
pub struct StoredEntry<M: StateMachine> {
    /// Position in the log.
    pub index: u64,
    /// Raft term of the leader that wrote it.
    pub term: u64,
    /// That leader's wall clock when it packed the entry, in milliseconds since 1970.
    pub time_ms: u64,
    /// Commands in the order in which they are applied; empty in Raft's own entries.
    pub commands: Vec<M::Command>,
    /// Hash of its bytes, equal for equal entries.
    pub digest: u64,
}

/// Data of a stopped replica: a state, and the log after it.
#[derive(Debug, Clone)]
pub struct OfflineLog<M: StateMachine> {
    /// State before the first of `entries`: empty, or that of the oldest snapshot since which the log is
    /// complete.
    pub base: M,
    /// Every entry after the base, including those never committed.
    pub entries: Vec<StoredEntry<M>>,
    /// Newest position recorded as committed by this replica; the record may lag.
    pub committed: Option<u64>,
}

impl<M: StateMachine> OfflineLog<M> {
    /// Reads the data directory of a stopped replica. The database recovers as it does at every start; no
    /// entry is changed.
    ///
    /// # Errors
    /// [`OpenError::InUse`] while a replica holds the directory; otherwise the read error.
    pub fn read(data_dir: &Path, cluster_id: &str) -> Result<Self, OpenError> {
        for folder in [LOG_FOLDER, SNAPSHOT_FOLDER].map(|name| data_dir.join(name)) {
            if !folder.is_dir() {
                let none = io::Error::from(io::ErrorKind::NotFound);
                return Err(disk(format!("looking for {}", folder.display()), none));
            }
        }
        let lock = DirectoryLock::take(data_dir)?;
        let path = data_dir.join(LOG_FOLDER);
        let log = RocksLog::open(&path)
            .map_err(|source| disk(format!("opening {}", path.display()), source))?
            .guarded_by(lock);
        let path = data_dir.join(SNAPSHOT_FOLDER);
        let snapshots = SnapshotDirectory::open(&path)
            .map_err(|source| disk(format!("opening {}", path.display()), source))?;
        let purged = position(&log, MetaKey::Purged)?;
        let snapshots = SnapshotStore::new(Arc::new(snapshots), cluster_id.to_owned());
        let base = base::<M>(&snapshots, purged)?;
        let first = base.last.map_or(0, |last| last.index + 1);
        Ok(Self {
            base: base.state,
            entries: entries_from(&log, first)?,
            committed: position(&log, MetaKey::Committed)?,
        })
    }

    /// Positions of the entries; none if the log is empty.
    #[must_use]
    pub fn range(&self) -> Option<RangeInclusive<u64>> {
        let (first, last) = (self.entries.first()?, self.entries.last()?);
        Some(first.index..=last.index)
    }
}

/// State at which the log continues: the empty one if the log is complete, else the oldest suitable
/// snapshot.
fn base<M: StateMachine>(
    snapshots: &SnapshotStore,
    purged: Option<u64>,
) -> Result<Applied<M>, OpenError> {
    let Some(purged) = purged else {
        return Ok(Applied::default());
    };
    let files = snapshots
        .all()
        .map_err(|source| disk("reading the snapshot folder".to_owned(), source))?;
    for file in files {
        let unreadable = |error| OpenError::from_decode(format!("snapshot {}", file.name), error);
        let meta = snapshots.read_meta(&file).map_err(unreadable)?;
        if meta.last_log_id.is_some_and(|last| last.index >= purged) {
            return snapshots.load::<M>(&file).map_err(unreadable);
        }
    }
    Err(OpenError::Corrupt {
        what: "the snapshot folder".to_owned(),
        detail: format!("the log was removed up to index {purged}, and no snapshot covers that"),
    })
}

/// The newest state at which the log continues: if the snapshot covering the truncated part is missing
/// there is none, even if an older one exists.
pub(crate) fn newest_base<M: StateMachine>(
    snapshots: &SnapshotStore,
    purged: Option<u64>,
) -> Result<Applied<M>, OpenError> {
    let newest = snapshots
        .newest()
        .map_err(|source| disk("reading the snapshot folder".to_owned(), source))?;
    match newest {
        Some(file) => {
            let unreadable =
                |error| OpenError::from_decode(format!("snapshot {}", file.name), error);
            let newest = snapshots.load::<M>(&file).map_err(unreadable)?;
            check_reach(newest.last.map(|last| last.index), purged)?;
            Ok(newest)
        }
        None => base(snapshots, purged),
    }
}

/// Rejects a snapshot that ends before the log begins: an empty log would not show that entries are
/// missing.
fn check_reach(covered: Option<u64>, purged: Option<u64>) -> Result<(), OpenError> {
    if purged <= covered {
        return Ok(());
    }
    let index =
        |index: Option<u64>| index.map_or_else(|| "nothing".to_owned(), |it| it.to_string());
    Err(OpenError::Corrupt {
        what: "the snapshot folder".to_owned(),
        detail: format!(
            "the log was removed up to index {}, the newest snapshot covers {}",
            index(purged),
            index(covered)
        ),
    })
}

fn entries_from<M: StateMachine>(
    log: &RocksLog,
    first: u64,
) -> Result<Vec<StoredEntry<M>>, OpenError> {
    let mut entries: Vec<StoredEntry<M>> = Vec::new();
    loop {
        let next = entries.last().map_or(first, |last| last.index + 1);
        let part = log
            .read_entries(next, u64::MAX, PART_BYTES)
            .map_err(|source| disk(format!("reading log entry {next}"), source))?;
        let Some((found, _)) = part.first() else {
            return Ok(entries);
        };
        if *found != next {
            return Err(OpenError::Corrupt {
                what: format!("log entry {next}"),
                detail: "it is missing".to_owned(),
            });
        }
        for (index, bytes) in part {
            let entry = stored(Bytes::from(bytes))
                .map_err(|error| OpenError::from_decode(format!("log entry {index}"), error))?;
            entries.push(entry);
        }
    }
}

fn stored<M: StateMachine>(bytes: Bytes) -> Result<StoredEntry<M>, DecodeError> {
    let digest = xxh3_64(&bytes);
    let entry: Entry<M> = record::decode(bytes)?;
    let (time_ms, commands) = match &entry.payload {
        EntryPayload::Normal(batch) => (batch.time_ms(), batch.commands().to_vec()),
        EntryPayload::Blank | EntryPayload::Membership(_) => (0, Vec::new()),
    };
    Ok(StoredEntry {
        index: entry.log_id.index,
        term: entry.log_id.leader_id.term,
        time_ms,
        commands,
        digest,
    })
}

/// A position stored beside the log.
pub(crate) fn position(log: &dyn LogDisk, key: MetaKey) -> Result<Option<u64>, OpenError> {
    let what = || format!("the log's record {:?}", key.name());
    let read = log.read_meta(key);
    let Some(bytes) = read.map_err(|source| disk(format!("reading {}", what()), source))? else {
        return Ok(None);
    };
    // Both records hold one position, in a field of the same number.
    let id = frame::decode::<proto::Committed>(Bytes::from(bytes))
        .and_then(|stored| convert::optional_log_id(stored.id))
        .map_err(|error| OpenError::from_decode(what(), error))?;
    Ok(id.map(|id| id.index))
}

fn disk(operation: String, source: io::Error) -> OpenError {
    OpenError::Disk { operation, source }
}
