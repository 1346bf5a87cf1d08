//! The part of RocksDB's interface that `raft-store` names, without a database behind it: none can be opened, so nothing here
//! is ever called after [`DB::open_cf_descriptors`] has said so.
//!
//! Fuzz targets read what a replica stores, not the database that it stores it in.
#![forbid(unsafe_code)]

use std::fmt;
use std::path::Path;

/// Why there is no database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error;

impl Error {
    /// What kind of error it is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::NotSupported
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("this program was built without RocksDB")
    }
}

impl std::error::Error for Error {}

/// Kinds of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// What is stored is damaged.
    Corruption,
    /// There is no database in this build.
    NotSupported,
}

/// A database that nobody has.
#[derive(Debug)]
pub enum DB {}

/// A column family of no database.
#[derive(Debug)]
pub enum ColumnFamily {}

/// A key with its value.
type Pair = (Box<[u8]>, Box<[u8]>);

impl DB {
    /// Opens nothing.
    ///
    /// # Errors
    /// Always.
    pub fn open_cf_descriptors(
        _options: &Options,
        _path: impl AsRef<Path>,
        _families: impl IntoIterator<Item = ColumnFamilyDescriptor>,
    ) -> Result<Self, Error> {
        Err(Error)
    }

    /// See RocksDB.
    pub fn latest_sequence_number(&self) -> u64 {
        match *self {}
    }

    /// See RocksDB.
    ///
    /// # Errors
    /// None: there is nobody to call it.
    pub fn flush_wal(&self, _sync: bool) -> Result<(), Error> {
        match *self {}
    }

    /// See RocksDB.
    pub fn cf_handle(&self, _name: &str) -> Option<&ColumnFamily> {
        match *self {}
    }

    /// See RocksDB.
    ///
    /// # Errors
    /// None: there is nobody to call it.
    pub fn write_opt(&self, _batch: WriteBatch, _options: &WriteOptions) -> Result<(), Error> {
        match *self {}
    }

    /// See RocksDB.
    pub fn iterator_cf(
        &self,
        _family: &ColumnFamily,
        _mode: IteratorMode<'_>,
    ) -> std::iter::Empty<Result<Pair, Error>> {
        match *self {}
    }

    /// See RocksDB.
    ///
    /// # Errors
    /// None: there is nobody to call it.
    pub fn get_cf(
        &self,
        _family: &ColumnFamily,
        _key: impl AsRef<[u8]>,
    ) -> Result<Option<Vec<u8>>, Error> {
        match *self {}
    }

    /// See RocksDB.
    ///
    /// # Errors
    /// None: there is nobody to call it.
    pub fn property_int_value_cf(
        &self,
        _family: &ColumnFamily,
        _name: &str,
    ) -> Result<Option<u64>, Error> {
        match *self {}
    }
}

/// Where to begin reading.
#[derive(Debug, Clone, Copy)]
pub enum IteratorMode<'a> {
    /// At the last key.
    End,
    /// At this key.
    From(&'a [u8], Direction),
}

/// In which order keys are read.
#[derive(Debug, Clone, Copy)]
pub enum Direction {
    /// Ascending.
    Forward,
}

/// How blocks are packed.
#[derive(Debug, Clone, Copy)]
pub enum DBCompressionType {
    /// By LZ4.
    Lz4,
}

/// What becomes of a log with a damaged end.
#[derive(Debug, Clone, Copy)]
pub enum DBRecoveryMode {
    /// What was cut short is left out.
    TolerateCorruptedTailRecords,
}

/// A column family that would be opened.
#[derive(Debug)]
pub struct ColumnFamilyDescriptor;

impl ColumnFamilyDescriptor {
    /// See RocksDB.
    #[must_use]
    pub fn new(_name: &str, _options: Options) -> Self {
        Self
    }
}

/// Options of a database or a family.
#[derive(Debug, Default)]
pub struct Options;

macro_rules! options {
    ($($name:ident($kind:ty)),+ $(,)?) => {
        impl Options {
            $(
                /// See RocksDB.
                pub fn $name(&mut self, _value: $kind) {}
            )+
        }
    };
}
options!(
    create_if_missing(bool),
    create_missing_column_families(bool),
    set_manual_wal_flush(bool),
    set_wal_recovery_mode(DBRecoveryMode),
    set_recycle_log_file_num(usize),
    set_track_and_verify_wals_in_manifest(bool),
    set_max_total_wal_size(u64),
    set_max_open_files(i32),
    set_paranoid_checks(bool),
    set_keep_log_file_num(usize),
    set_max_log_file_size(usize),
    set_write_buffer_size(usize),
    set_compression_type(DBCompressionType),
);

/// How a batch is written.
#[derive(Debug, Default)]
pub struct WriteOptions;

impl WriteOptions {
    /// See RocksDB.
    pub fn set_sync(&mut self, _sync: bool) {}
}

/// Changes that are written together.
#[derive(Debug, Default)]
pub struct WriteBatch;

impl WriteBatch {
    /// See RocksDB.
    pub fn put_cf(
        &mut self,
        _family: &ColumnFamily,
        _key: impl AsRef<[u8]>,
        _value: impl AsRef<[u8]>,
    ) {
    }

    /// See RocksDB.
    pub fn delete_range_cf(
        &mut self,
        _family: &ColumnFamily,
        _from: impl AsRef<[u8]>,
        _to: impl AsRef<[u8]>,
    ) {
    }
}
