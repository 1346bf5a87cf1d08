//! A worker's journal: raw, and with valid frames around its records. The records are unchanged when read
//! from the compacted journal.

use std::fs;

use crate::{SMALL, assert_same, bounded, choice, or_panic};
use muster_worker::journal::Journal;

/// A journal with these frames.
fn journal(frames: &[&[u8]]) -> Vec<u8> {
    let mut bytes = b"MUSTERWJ".to_vec();
    bytes.extend(1u32.to_le_bytes());
    for frame in frames {
        let length = u32::try_from(frame.len()).unwrap_or(u32::MAX).to_le_bytes();
        bytes.extend(length);
        bytes.extend(crc32fast::hash(&length).to_le_bytes());
        bytes.extend(crc32fast::hash(frame).to_le_bytes());
        bytes.extend(*frame);
    }
    bytes
}

fn check(bytes: &[u8]) {
    let folder = or_panic(tempfile::tempdir(), "a temporary folder");
    let path = folder.path().join("journal");
    or_panic(fs::write(&path, bytes), "a temporary folder");
    let Ok((mut opened, records)) = Journal::open(&path).map_err(|error| error.to_string()) else {
        return;
    };
    or_panic(opened.compact(&records), "a journal is compacted");
    drop(opened);
    let (_, again) = or_panic(Journal::open(&path), "what was written is refused");
    assert_same(&again, &records);
}

/// Checks one input.
pub(crate) fn run(data: &[u8]) {
    let Some((kind, bytes)) = choice(data) else {
        return;
    };
    bounded(data, SMALL, || match kind {
        0 => check(&journal(&[bytes])),
        1 => {
            let frames: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
            check(&journal(&frames));
        }
        _ => check(bytes),
    });
}
