//! Journal of the agent: durable record of what it accepted and started, so that nothing is started twice.
//!
//! One file: a header, then frames. A frame is what one sync made durable, so damage to the last frame is a
//! torn write and is cut off, while damage before a valid frame is a broken disk and is refused.

mod frame;

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use frame::Decoded;
use muster_control::agent::JournalRecord;
use muster_supervisor::files;

use crate::limits::JOURNAL_COMPACTION_BYTES;

/// First bytes of every journal.
const MAGIC: &[u8; 8] = b"MUSTERWJ";
/// Version of the format behind the header.
const FORMAT: u32 = 1;
/// Bytes before the first frame.
const HEADER_BYTES: usize = 12;

/// Reasons why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file system failed.
    #[error("{operation} {} failed", path.display())]
    Disk {
        /// The failed operation.
        operation: &'static str,
        /// The journal.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file is not a journal.
    #[error("{} is not a worker journal", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// It was written by a program of another version.
    #[error("journal {} has format {found}; this program knows format {FORMAT}", path.display())]
    Format {
        /// The journal.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// A frame before the last one is damaged.
    #[error(
        "journal {} is damaged at byte {offset}, before intact data: the disk lost confirmed writes; \
         move the data directory away to start as a new worker",
        path.display()
    )]
    Damaged {
        /// The journal.
        path: PathBuf,
        /// Position of the damage.
        offset: u64,
    },
    /// A frame is intact but cannot be decoded by this program.
    #[error("a record of journal {} cannot be read", path.display())]
    Record {
        /// The journal.
        path: PathBuf,
        /// The cause.
        #[source]
        source: serde_json::Error,
    },
}

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// True after a failed write: there may be bytes beyond `bytes`.
    uncertain: bool,
    /// Length after the last compaction: the next one is due when it has doubled.
    compacted_bytes: u64,
}

impl Journal {
    /// Opens or creates a journal and reads it. A torn tail is cut off.
    ///
    /// # Errors
    /// See [`JournalError`]; nothing is changed on disk then.
    pub fn open(path: &Path) -> Result<(Self, Vec<JournalRecord>), JournalError> {
        let disk = |operation| disk_error(operation, path);
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                files::replace_durably(path, &header()).map_err(disk("creating"))?;
                header()
            }
            Err(error) => return Err(disk("reading")(error)),
        };
        let (records, whole) = read_all(path, &bytes)?;
        let file = OpenOptions::new()
            .append(true)
            .open(path)
            .map_err(disk("opening"))?;
        if whole < bytes.len() {
            tracing::warn!(
                path = %path.display(),
                bytes = bytes.len() - whole,
                "the journal's last write was torn; it was never confirmed and is cut off"
            );
            file.set_len(whole as u64).map_err(disk("truncating"))?;
            file.sync_all().map_err(disk("syncing"))?;
        }
        let journal = Self {
            path: path.to_owned(),
            file,
            bytes: whole as u64,
            uncertain: false,
            compacted_bytes: 0,
        };
        Ok((journal, records))
    }

    /// Appends records as one frame; they are durable when this returns.
    ///
    /// # Errors
    /// [`JournalError::Disk`]; nothing was appended then, and it may be tried again.
    pub fn append(&mut self, records: &[JournalRecord]) -> Result<(), JournalError> {
        let frame = encode(&self.path, records)?;
        // Removes what a failed write left behind the last good frame.
        if self.uncertain {
            self.file
                .set_len(self.bytes)
                .map_err(disk_error("truncating", &self.path))?;
        }
        self.uncertain = true;
        self.file
            .write_all(&frame)
            .map_err(disk_error("writing", &self.path))?;
        self.file
            .sync_data()
            .map_err(disk_error("syncing", &self.path))?;
        self.uncertain = false;
        self.bytes += frame.len() as u64;
        Ok(())
    }

    /// Whether it is long enough to be rewritten.
    #[must_use]
    pub const fn wants_compaction(&self) -> bool {
        self.bytes > JOURNAL_COMPACTION_BYTES && self.bytes > 2 * self.compacted_bytes
    }

    /// Replaces all records atomically.
    ///
    /// # Errors
    /// [`JournalError::Disk`]; the old journal is still intact then.
    pub fn compact(&mut self, records: &[JournalRecord]) -> Result<(), JournalError> {
        let mut bytes = header();
        bytes.extend(encode(&self.path, records)?);
        let disk = |operation| disk_error(operation, &self.path);
        files::replace_durably(&self.path, &bytes).map_err(disk("rewriting"))?;
        self.file = OpenOptions::new()
            .append(true)
            .open(&self.path)
            .map_err(disk("opening"))?;
        self.bytes = bytes.len() as u64;
        self.uncertain = false;
        self.compacted_bytes = self.bytes;
        Ok(())
    }
}

fn disk_error(operation: &'static str, path: &Path) -> impl FnOnce(io::Error) -> JournalError {
    let path = path.to_owned();
    move |source| JournalError::Disk {
        operation,
        path,
        source,
    }
}

fn header() -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.extend(FORMAT.to_le_bytes());
    bytes
}

fn encode(path: &Path, records: &[JournalRecord]) -> Result<Vec<u8>, JournalError> {
    let payload = serde_json::to_vec(records).map_err(|source| JournalError::Record {
        path: path.to_owned(),
        source,
    })?;
    frame::encode(&payload).map_err(disk_error("writing", path))
}

/// All records, and the length of the intact part of the file.
fn read_all(path: &Path, bytes: &[u8]) -> Result<(Vec<JournalRecord>, usize), JournalError> {
    let (magic, format) = match bytes.get(..HEADER_BYTES) {
        Some(header) => header.split_at(MAGIC.len()),
        None => return Err(JournalError::Foreign { path: path.into() }),
    };
    if magic != MAGIC {
        return Err(JournalError::Foreign { path: path.into() });
    }
    let found = format
        .iter()
        .rev()
        .fold(0, |sum, byte| sum << 8 | u32::from(*byte));
    if found != FORMAT {
        let path = path.into();
        return Err(JournalError::Format { path, found });
    }
    let mut records = Vec::new();
    let mut offset = HEADER_BYTES;
    while offset < bytes.len() {
        match frame::decode(&bytes[offset..]) {
            Decoded::Whole { payload, bytes } => {
                let batch: Vec<JournalRecord> =
                    serde_json::from_slice(payload).map_err(|source| JournalError::Record {
                        path: path.into(),
                        source,
                    })?;
                records.extend(batch);
                offset += bytes;
            }
            Decoded::Torn => break,
            Decoded::Damaged => {
                return Err(JournalError::Damaged {
                    path: path.into(),
                    offset: offset as u64,
                });
            }
        }
    }
    Ok((records, offset))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use muster_model::ids::LeadershipEpoch;

    use super::*;

    fn leader(epoch: u64) -> JournalRecord {
        JournalRecord::Leader(LeadershipEpoch(epoch))
    }

    /// A journal with three frames, and the end of each.
    fn three(directory: &Path) -> (PathBuf, Vec<u64>) {
        let path = directory.join("journal");
        let (mut journal, records) = Journal::open(&path).unwrap();
        assert_eq!(records, vec![]);
        let ends = (1..=3)
            .map(|epoch| {
                journal.append(&[leader(epoch)]).unwrap();
                journal.bytes
            })
            .collect();
        (path, ends)
    }

    #[test]
    fn appended_entries_are_read_back_and_compacted() {
        let directory = tempfile::tempdir().unwrap();
        let (path, _) = three(directory.path());
        let (mut journal, records) = Journal::open(&path).unwrap();
        assert_eq!(records, vec![leader(1), leader(2), leader(3)]);
        journal.compact(&[leader(3)]).unwrap();
        journal.append(&[leader(4)]).unwrap();
        assert_eq!(Journal::open(&path).unwrap().1, vec![leader(3), leader(4)]);
    }

    #[test]
    fn a_torn_tail_of_any_length_is_cut_off() {
        let directory = tempfile::tempdir().unwrap();
        let (path, ends) = three(directory.path());
        let whole = std::fs::read(&path).unwrap();
        for length in ends[1] + 1..ends[2] {
            std::fs::write(&path, &whole[..usize::try_from(length).unwrap()]).unwrap();
            assert_eq!(
                Journal::open(&path).unwrap().1,
                vec![leader(1), leader(2)],
                "{length}"
            );
            assert_eq!(std::fs::metadata(&path).unwrap().len(), ends[1]);
        }
    }

    #[test]
    fn a_tail_of_zeros_or_of_garbage_is_cut_off() {
        let directory = tempfile::tempdir().unwrap();
        let (path, ends) = three(directory.path());
        let whole = std::fs::read(&path).unwrap();
        let kept = usize::try_from(ends[1]).unwrap();
        for filling in [0u8, 0x5a] {
            let mut torn = whole.clone();
            torn[kept..].fill(filling);
            std::fs::write(&path, &torn).unwrap();
            assert_eq!(Journal::open(&path).unwrap().1, vec![leader(1), leader(2)]);
        }
    }

    #[test]
    fn damage_before_whole_data_is_refused_and_nothing_is_lost() {
        let directory = tempfile::tempdir().unwrap();
        let (path, ends) = three(directory.path());
        let whole = std::fs::read(&path).unwrap();
        for position in HEADER_BYTES..usize::try_from(ends[1]).unwrap() {
            let mut damaged = whole.clone();
            damaged[position] ^= 0x10;
            std::fs::write(&path, &damaged).unwrap();
            let error = Journal::open(&path).unwrap_err();
            assert!(
                matches!(error, JournalError::Damaged { .. }),
                "{position}: {error}"
            );
            assert_eq!(std::fs::read(&path).unwrap(), damaged);
        }
    }

    #[test]
    fn foreign_files_and_newer_formats_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("journal");
        for bytes in [&b""[..], b"hello", b"hello, this is no journal"] {
            std::fs::write(&path, bytes).unwrap();
            let error = Journal::open(&path).unwrap_err();
            assert!(matches!(error, JournalError::Foreign { .. }), "{error}");
        }
        std::fs::write(&path, b"MUSTERWJ\x02\0\0\0").unwrap();
        let error = Journal::open(&path).unwrap_err();
        assert!(
            matches!(error, JournalError::Format { found: 2, .. }),
            "{error}"
        );
    }
}
