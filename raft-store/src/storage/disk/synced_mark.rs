//! Synced mark: the acknowledged end of the log, kept beside RocksDB.
//!
//! RocksDB treats a write-ahead log that ends early as truncated by a crash: it cannot know what was
//! synced. The mark can: it is written after each sync, so it never runs ahead of the medium, and a log
//! that ends before it has lost acknowledged writes. The mark itself is not synced but written back by the
//! kernel: it is exact after the end of a process, and may lag behind by some seconds of writes after the
//! crash of a host.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Name of the file in the database's folder.
const FILE: &str = "SYNCED";
/// Layout of the file: version, number (little-endian), CRC-32 of both.
const VERSION: u8 = 1;
const NUMBER_END: usize = 9;
const BYTES: usize = 13;

/// Sequence number of the last write known to be on the medium.
#[derive(Debug)]
pub(super) struct SyncedMark {
    file: File,
}

impl SyncedMark {
    /// Opens or creates the mark of the database at `folder`.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(folder.join(FILE))?;
        file.sync_all()?;
        File::open(folder)?.sync_all()?;
        Ok(Self { file })
    }

    /// Returns the last number written, 0 if none. A damaged mark is [`io::ErrorKind::InvalidData`].
    pub(super) fn read(&self) -> io::Result<u64> {
        if self.file.metadata()?.len() == 0 {
            return Ok(0);
        }
        let mut bytes = [0; BYTES];
        match self.file.read_exact_at(&mut bytes, 0) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(damaged()),
            Err(error) => Err(error),
            Ok(()) => decode(&bytes).ok_or_else(damaged),
        }
    }

    /// Records that everything up to write `number` is on the medium.
    pub(super) fn write(&self, number: u64) -> io::Result<()> {
        self.file.write_all_at(&encode(number), 0)
    }
}

fn encode(number: u64) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[0] = VERSION;
    bytes[1..NUMBER_END].copy_from_slice(&number.to_le_bytes());
    let checksum = crc32fast::hash(&bytes[..NUMBER_END]);
    bytes[NUMBER_END..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; BYTES]) -> Option<u64> {
    let (content, checksum) = bytes.split_at(NUMBER_END);
    let (version, number) = content.split_first()?;
    let intact = crc32fast::hash(content).to_le_bytes() == checksum;
    let number = u64::from_le_bytes(number.try_into().ok()?);
    (intact && *version == VERSION).then_some(number)
}

fn damaged() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the file {FILE} in its folder is damaged or of a newer build"),
    )
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_frozen_and_damage_is_noticed() {
        let frozen = [1, 0x2a, 1, 0, 0, 0, 0, 0, 0, 0xc7, 0x75, 0xb3, 0x3f];
        assert_eq!(encode(298), frozen);
        assert_eq!(decode(&frozen), Some(298));
        for position in 0..BYTES {
            let mut flipped = frozen;
            flipped[position] ^= 4;
            assert_eq!(decode(&flipped), None, "at {position}");
        }
    }

    #[test]
    fn the_newest_number_is_found_again() {
        let folder = tempfile::TempDir::new().unwrap();
        let mark = SyncedMark::open(folder.path()).unwrap();
        assert_eq!(mark.read().unwrap(), 0);
        mark.write(7).unwrap();
        mark.write(9).unwrap();
        let again = SyncedMark::open(folder.path()).unwrap();
        assert_eq!(again.read().unwrap(), 9);
        again.file.set_len(5).unwrap();
        assert_eq!(again.read().unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
