//! Storage interface of a replica: a small log store and a folder of snapshots.
//!
//! The traits separate openraft's adapters ([`crate::storage::log_store`], [`crate::apply::applier`]) from the medium:
//! RocksDB and files in production, memory in fast tests and in the simulation, where unsynced data is lost
//! at a kill.

mod directory;
mod rocks;
mod rocks_flusher;
mod rocks_gauges;
mod synced_mark;

use std::io::{self, Read, Write};

pub use directory::SnapshotDirectory;
pub use rocks::RocksLog;

/// Called once with the result of a sync.
pub type Synced = Box<dyn FnOnce(io::Result<()>) + Send>;

/// Key of a small record stored beside the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MetaKey {
    /// Identity of the data's owner.
    Identity,
    /// The vote cast.
    Vote,
    /// The last position known to be committed.
    Committed,
    /// The last position removed from the front.
    Purged,
}

impl MetaKey {
    /// The key's name on disk and in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Vote => "vote",
            Self::Committed => "committed",
            Self::Purged => "purged",
        }
    }
}

/// One change; a list of changes is applied atomically.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogChange {
    /// Stores the record of an entry.
    PutEntry {
        /// Position in the log.
        index: u64,
        /// The framed record.
        record: Vec<u8>,
    },
    /// Removes entries `from..to`.
    RemoveEntries {
        /// First index removed.
        from: u64,
        /// First index kept.
        to: u64,
    },
    /// Stores a small record.
    PutMeta {
        /// Key of the record.
        key: MetaKey,
        /// The framed record.
        record: Vec<u8>,
    },
}

/// Storage of the log and of the records beside it.
///
/// Writes become durable in the order they were made: a sync covers every write before it. After a failed
/// write or sync the disk rejects all further writes; a failed sync is never retried.
pub trait LogDisk: Send + Sync + 'static {
    /// Applies the changes; readable at once, durable after the next sync.
    fn write(&self, changes: Vec<LogChange>) -> io::Result<()>;

    /// Makes everything written so far durable, then calls `done`. One sync may serve many calls; they
    /// complete in order.
    fn sync(&self, done: Synced);

    /// Reads records from `from` on, below `to`, until `bytes_max` is reached; at least one if there is
    /// one. Stops at the first missing index after the first record found.
    fn read_entries(&self, from: u64, to: u64, bytes_max: usize)
    -> io::Result<Vec<(u64, Vec<u8>)>>;

    /// The last entry, if the log has any.
    fn last_entry(&self) -> io::Result<Option<(u64, Vec<u8>)>>;

    /// Reads a small record.
    fn read_meta(&self, key: MetaKey) -> io::Result<Option<Vec<u8>>>;
}

/// A snapshot being written.
pub trait SnapshotWrite: Write + Send {
    /// Makes the bytes durable; the file stays staged until it is published.
    fn finish(self: Box<Self>) -> io::Result<()>;
}

/// Storage of snapshot files. A file is *staged* while it is written and *published* by one atomic, durable
/// rename; only published files survive a restart.
pub trait SnapshotDisk: Send + Sync + 'static {
    /// Starts a staged file, replacing an existing one of that name.
    fn create(&self, name: &str) -> io::Result<Box<dyn SnapshotWrite>>;

    /// Publishes a finished staged file; no error if it is already published and nothing is staged.
    fn publish(&self, name: &str) -> io::Result<()>;

    /// Opens a published file, or the staged one if none is published under that name.
    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>>;

    /// Names of the published files, sorted.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Removes a published or staged file; no error if there is none.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Removes all staged files.
    fn discard_staged(&self) -> io::Result<()>;
}
