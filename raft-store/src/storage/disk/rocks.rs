//! Log in RocksDB: column family `log` (index, big-endian, to record) and `meta`.
//!
//! Writes go to the write-ahead log's buffer without a sync; one thread flushes and syncs the write-ahead
//! log for all waiting writers. The write-ahead log is in write order, so the writes that survive a crash
//! are a prefix of all writes.
//!
//! A crash may cut the last write short, and that write was not acknowledged. Any other damage is rejected:
//! RocksDB checks every record and the sizes of closed files, and the synced mark distinguishes a truncated
//! unacknowledged write from a lost acknowledged one. This is why files are not recycled: in a recycled
//! file a damaged record looks like leftovers of an older one.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, io};

use rocksdb::{
    ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, DBRecoveryMode, Direction,
    IteratorMode, Options, WriteBatch, WriteOptions,
};

use crate::replica::identity::DirectoryLock;
use crate::storage::disk::rocks_flusher::Flusher;
use crate::storage::disk::rocks_gauges::{self, GaugeReader};
use crate::storage::disk::synced_mark::SyncedMark;
use crate::storage::disk::{LogChange, LogDisk, MetaKey, Synced};

pub(super) const LOG: &str = "log";
const META: &str = "meta";

/// Size of one memtable: most entries are purged from the log before a larger one would help.
const MEMTABLE_BYTES: usize = 16 * 1024 * 1024;
/// Size at which write-ahead logs are rotated.
const WAL_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Files RocksDB may keep open.
const OPEN_FILES_MAX: i32 = 256;
/// Size of RocksDB's own log files.
const INFO_LOG_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The log of one replica in RocksDB.
pub struct RocksLog {
    path: PathBuf,
    // Both are dropped before `database`: dropping them joins the threads that use it.
    flusher: Flusher,
    _gauges: GaugeReader,
    database: Arc<DB>,
    // Dropped last: the directory may be unlocked only after the database is closed.
    lock: Option<DirectoryLock>,
}

impl RocksLog {
    /// Opens or creates the database at `path`. Damage to acknowledged data is
    /// [`io::ErrorKind::InvalidData`].
    pub fn open(path: impl Into<PathBuf>) -> io::Result<Self> {
        let path = path.into();
        let database = Arc::new(open_database(&path).map_err(to_io)?);
        let mark = SyncedMark::open(&path)?;
        check_end(database.latest_sequence_number(), mark.read()?)?;
        let for_flusher = Arc::clone(&database);
        let flusher = Flusher::start(move || {
            // Read before the sync, which may not cover later writes.
            let written = for_flusher.latest_sequence_number();
            for_flusher.flush_wal(true).map_err(to_io)?;
            mark.write(written)
        })?;
        let for_gauges = Arc::clone(&database);
        let gauges = GaugeReader::start(move || rocks_gauges::read(&for_gauges))?;
        Ok(Self {
            path,
            flusher,
            _gauges: gauges,
            database,
            lock: None,
        })
    }

    /// Holds the directory's lock as long as the database is open.
    pub(crate) fn guarded_by(self, lock: DirectoryLock) -> Self {
        Self {
            lock: Some(lock),
            ..self
        }
    }

    /// Path of the database.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn family(&self, name: &str) -> io::Result<&ColumnFamily> {
        self.database
            .cf_handle(name)
            .ok_or_else(|| io::Error::other(format!("column family {name} is missing")))
    }

    fn fill(&self, changes: Vec<LogChange>) -> io::Result<WriteBatch> {
        let (log, meta) = (self.family(LOG)?, self.family(META)?);
        let mut batch = WriteBatch::default();
        for change in changes {
            match change {
                LogChange::PutEntry { index, record } => {
                    batch.put_cf(log, index.to_be_bytes(), record);
                }
                LogChange::RemoveEntries { from, to } => {
                    batch.delete_range_cf(log, from.to_be_bytes(), to.to_be_bytes());
                }
                LogChange::PutMeta { key, record } => batch.put_cf(meta, key.name(), record),
            }
        }
        Ok(batch)
    }
}

impl LogDisk for RocksLog {
    fn write(&self, changes: Vec<LogChange>) -> io::Result<()> {
        self.flusher.check()?;
        let batch = self.fill(changes)?;
        let mut options = WriteOptions::default();
        options.set_sync(false);
        let written = self.database.write_opt(batch, &options).map_err(to_io);
        if written.is_err() {
            self.flusher.fail();
        }
        written
    }

    fn sync(&self, done: Synced) {
        self.flusher.submit(done);
    }

    fn read_entries(
        &self,
        from: u64,
        to: u64,
        bytes_max: usize,
    ) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let mode_key = from.to_be_bytes();
        let mode = IteratorMode::From(&mode_key, Direction::Forward);
        let mut records: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut bytes = 0;
        for item in self.database.iterator_cf(self.family(LOG)?, mode) {
            let (key, record) = item.map_err(to_io)?;
            let index = decode_index(&key)?;
            let hole = records.last().is_some_and(|(last, _)| last + 1 != index);
            let full = !records.is_empty() && bytes + record.len() > bytes_max;
            if index >= to || hole || full {
                break;
            }
            bytes += record.len();
            records.push((index, record.into_vec()));
        }
        Ok(records)
    }

    fn last_entry(&self) -> io::Result<Option<(u64, Vec<u8>)>> {
        let mut backwards = self
            .database
            .iterator_cf(self.family(LOG)?, IteratorMode::End);
        let Some(item) = backwards.next() else {
            return Ok(None);
        };
        let (key, record) = item.map_err(to_io)?;
        Ok(Some((decode_index(&key)?, record.into_vec())))
    }

    fn read_meta(&self, key: MetaKey) -> io::Result<Option<Vec<u8>>> {
        self.database
            .get_cf(self.family(META)?, key.name())
            .map_err(to_io)
    }
}

impl fmt::Debug for RocksLog {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("RocksLog")
            .field("path", &self.path)
            .field("lock", &self.lock)
            .finish_non_exhaustive()
    }
}

fn open_database(path: &Path) -> Result<DB, rocksdb::Error> {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.create_missing_column_families(true);
    options.set_manual_wal_flush(true);
    options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
    options.set_recycle_log_file_num(0);
    options.set_track_and_verify_wals_in_manifest(true);
    options.set_max_total_wal_size(WAL_BYTES_MAX);
    options.set_max_open_files(OPEN_FILES_MAX);
    options.set_paranoid_checks(true);
    options.set_keep_log_file_num(2);
    options.set_max_log_file_size(INFO_LOG_BYTES_MAX);
    let families = [LOG, META].map(|name| ColumnFamilyDescriptor::new(name, family_options()));
    DB::open_cf_descriptors(&options, path, families)
}

/// Rejects a write-ahead log that ends before the last acknowledged write.
fn check_end(last: u64, synced: u64) -> io::Result<()> {
    if last >= synced {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        format!("its write-ahead log ends at write {last}, write {synced} was acknowledged"),
    ))
}

fn family_options() -> Options {
    let mut options = Options::default();
    options.set_write_buffer_size(MEMTABLE_BYTES);
    options.set_compression_type(DBCompressionType::Lz4);
    options
}

fn decode_index(key: &[u8]) -> io::Result<u64> {
    key.try_into()
        .map(u64::from_be_bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a log key is not 8 bytes long"))
}

fn to_io(error: rocksdb::Error) -> io::Error {
    let kind = match error.kind() {
        rocksdb::ErrorKind::Corruption => io::ErrorKind::InvalidData,
        _ => io::ErrorKind::Other,
    };
    io::Error::new(kind, error)
}
