//! Damage to the write-ahead log: an acknowledged write is never dropped silently, and a write cut off by a
//! crash does not keep the replica from starting.

use std::path::{Path, PathBuf};
use std::{fs, io};

use muster_raft_store::storage::disk::{LogChange, LogDisk, MetaKey, RocksLog};
use muster_raft_store::{Handle, OpenError, Peer};
use tempfile::TempDir;

use crate::support::counter::{Add, Counter};
use crate::support::{config, leads};

/// Bytes of one record.
const RECORD_BYTES: usize = 100;
/// Odd, so that damage hits every part of a record.
const FLIP_STEP: usize = 37;

/// Writes entries and waits for their sync.
fn append(log: &RocksLog, indexes: std::ops::Range<u64>) {
    for index in indexes {
        let record = vec![index as u8; RECORD_BYTES];
        log.write(vec![LogChange::PutEntry { index, record }])
            .unwrap();
    }
    let (sender, synced) = std::sync::mpsc::sync_channel(1);
    log.sync(Box::new(move |result| sender.send(result).unwrap()));
    synced.recv().unwrap().unwrap();
}

/// Content of a folder after a crash at this moment.
fn image(folder: &Path) -> TempDir {
    let copy = TempDir::new().unwrap();
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
    }
    copy
}

/// File with the newest writes.
fn wal(folder: &Path) -> PathBuf {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "log"))
        .collect();
    files.sort();
    files.pop().unwrap()
}

fn refusal(folder: &Path) -> io::Error {
    let error = RocksLog::open(folder).expect_err("the damage is noticed");
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    error
}

fn last_index(folder: &Path) -> u64 {
    let log = RocksLog::open(folder).unwrap();
    log.last_entry().unwrap().unwrap().0
}

#[test]
fn a_flipped_bit_anywhere_in_acknowledged_writes_is_refused() {
    let folder = TempDir::new().unwrap();
    let log = RocksLog::open(folder.path()).unwrap();
    log.write(vec![LogChange::PutMeta {
        key: MetaKey::Vote,
        record: vec![7; RECORD_BYTES],
    }])
    .unwrap();
    append(&log, 0..10);
    let bytes = fs::read(wal(folder.path())).unwrap();
    assert!(bytes.len() > 10 * RECORD_BYTES);
    for position in (0..bytes.len()).step_by(FLIP_STEP) {
        let copy = image(folder.path());
        let mut flipped = bytes.clone();
        flipped[position] ^= 1;
        fs::write(wal(copy.path()), flipped).unwrap();
        refusal(copy.path());
    }
    assert_eq!(last_index(image(folder.path()).path()), 9);
}

#[test]
fn a_log_that_lost_acknowledged_writes_at_its_end_is_refused() {
    let folder = TempDir::new().unwrap();
    let log = RocksLog::open(folder.path()).unwrap();
    append(&log, 0..10);
    for lost_bytes in [1, RECORD_BYTES, 3 * RECORD_BYTES] {
        let copy = image(folder.path());
        let path = wal(copy.path());
        let bytes = fs::read(&path).unwrap();
        fs::write(&path, &bytes[..bytes.len() - lost_bytes]).unwrap();
        let error = refusal(copy.path()).to_string();
        assert!(error.contains("write 10 was acknowledged"), "{error}");
        // Opening it once more does not repair it.
        refusal(copy.path());
    }
}

#[test]
fn a_write_cut_off_by_a_crash_is_dropped_and_the_log_opens() {
    let folder = TempDir::new().unwrap();
    let log = RocksLog::open(folder.path()).unwrap();
    append(&log, 0..10);
    let acknowledged = image(folder.path());
    append(&log, 10..11);
    let longer = fs::read(wal(folder.path())).unwrap();
    let length = fs::read(wal(acknowledged.path())).unwrap().len();
    for torn_at in [length + 1, length + 8, longer.len() - 1] {
        let copy = image(acknowledged.path());
        fs::write(wal(copy.path()), &longer[..torn_at]).unwrap();
        let log = RocksLog::open(copy.path()).unwrap();
        assert_eq!(log.last_entry().unwrap().unwrap().0, 9);
        append(&log, 10..12);
        drop(log);
        assert_eq!(last_index(copy.path()), 11);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_for_a_damaged_log_names_it_and_the_remedy() {
    let folder = TempDir::new().unwrap();
    let handle = Handle::<Counter>::open(config(1, folder.path()))
        .await
        .unwrap();
    handle
        .initialize(vec![Peer::new(1, "127.0.0.1:1")])
        .await
        .unwrap();
    leads(&handle).await;
    for amount in 0..20 {
        handle.propose(vec![Add::new("a", amount)]).await.unwrap();
    }
    let log = image(&folder.path().join("log"));
    let path = wal(log.path());
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&path, bytes).unwrap();

    let data = TempDir::new().unwrap();
    fs::rename(log.path(), data.path().join("log")).unwrap();
    let error = Handle::<Counter>::open(config(1, data.path()))
        .await
        .unwrap_err();
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error:?}");
    let message = error.to_string();
    let named = data.path().join("log").display().to_string();
    assert!(message.contains(&named), "{message}");
    assert!(message.contains("empty its data directory"), "{message}");
    handle.shutdown().await;
}
