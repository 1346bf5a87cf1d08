//! Serialized unsynced writes, appended to the end of a file: each with its length and a checksum, so that
//! a torn write is recognized.

use muster_raft_store::storage::disk::{LogChange, MetaKey};

/// Bytes before a write: its length and its checksum.
const HEAD_BYTES: usize = 8;

/// Tag of a change: its first byte.
const PUT_ENTRY: u8 = 0;
const REMOVE_ENTRIES: u8 = 1;
const PUT_META: u8 = 2;

/// All records that a change may name.
const META_KEYS: [MetaKey; 4] = [
    MetaKey::Identity,
    MetaKey::Vote,
    MetaKey::Committed,
    MetaKey::Purged,
];

/// Byte that encodes a record's key.
const fn byte_of(key: MetaKey) -> u8 {
    match key {
        MetaKey::Identity => 0,
        MetaKey::Vote => 1,
        MetaKey::Committed => 2,
        MetaKey::Purged => 3,
    }
}

/// Writes found at the end of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Complete writes.
    pub(super) writes: Vec<Vec<LogChange>>,
    /// Whether an incomplete write follows them.
    pub(super) is_torn: bool,
}

/// Serializes a write.
pub(super) fn frame(write: &[LogChange]) -> Vec<u8> {
    let mut body = Vec::new();
    for change in write {
        match change {
            LogChange::PutEntry { index, record } => {
                body.push(PUT_ENTRY);
                body.extend(index.to_le_bytes());
                push_record(&mut body, record);
            }
            LogChange::RemoveEntries { from, to } => {
                body.push(REMOVE_ENTRIES);
                body.extend(from.to_le_bytes());
                body.extend(to.to_le_bytes());
            }
            LogChange::PutMeta { key, record } => {
                body.push(PUT_META);
                body.push(byte_of(*key));
                push_record(&mut body, record);
            }
        }
    }
    let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
    bytes.extend(length_of(&body));
    bytes.extend(crc32fast::hash(&body).to_le_bytes());
    bytes.extend(body);
    bytes
}

/// Parses the complete writes at the beginning of `bytes`.
pub(super) fn read(mut bytes: &[u8]) -> Found {
    let mut found = Found::default();
    while !bytes.is_empty() {
        let Some(write) = take_write(&mut bytes) else {
            found.is_torn = true;
            break;
        };
        found.writes.push(write);
    }
    found
}

fn take_write(bytes: &mut &[u8]) -> Option<Vec<LogChange>> {
    let length = take_length(bytes)?;
    let checksum = u32::from_le_bytes(take(bytes)?);
    let (mut body, rest) = bytes.split_at_checked(length)?;
    if crc32fast::hash(body) != checksum {
        return None;
    }
    let mut write = Vec::new();
    while !body.is_empty() {
        write.push(take_change(&mut body)?);
    }
    *bytes = rest;
    Some(write)
}

fn take_change(body: &mut &[u8]) -> Option<LogChange> {
    let [kind] = take(body)?;
    match kind {
        PUT_ENTRY => Some(LogChange::PutEntry {
            index: u64::from_le_bytes(take(body)?),
            record: take_record(body)?,
        }),
        REMOVE_ENTRIES => Some(LogChange::RemoveEntries {
            from: u64::from_le_bytes(take(body)?),
            to: u64::from_le_bytes(take(body)?),
        }),
        PUT_META => {
            let [key] = take(body)?;
            Some(LogChange::PutMeta {
                key: META_KEYS.into_iter().find(|known| byte_of(*known) == key)?,
                record: take_record(body)?,
            })
        }
        _ => None,
    }
}

fn push_record(body: &mut Vec<u8>, record: &[u8]) {
    body.extend(length_of(record));
    body.extend(record);
}

fn take_record(body: &mut &[u8]) -> Option<Vec<u8>> {
    let length = take_length(body)?;
    let (record, rest) = body.split_at_checked(length)?;
    *body = rest;
    Some(record.to_vec())
}

/// Encodes a length; none exceeds 4 GiB.
fn length_of(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes()
}

fn take_length(bytes: &mut &[u8]) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(take(bytes)?)).ok()
}

fn take<const COUNT: usize>(bytes: &mut &[u8]) -> Option<[u8; COUNT]> {
    let (taken, rest) = bytes.split_first_chunk::<COUNT>()?;
    *bytes = rest;
    Some(*taken)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn writes() -> Vec<Vec<LogChange>> {
        let put = |index| LogChange::PutEntry {
            index,
            record: vec![7; 30],
        };
        let meta = |key| LogChange::PutMeta {
            key,
            record: vec![9; 5],
        };
        let remove = LogChange::RemoveEntries { from: 3, to: 9 };
        let metas = META_KEYS.into_iter().map(meta).collect();
        vec![vec![put(1), put(2)], vec![remove, put(3)], metas]
    }

    #[test]
    fn of_bytes_that_are_cut_off_the_whole_writes_are_found_and_no_other() {
        let writes = writes();
        let frames: Vec<Vec<u8>> = writes.iter().map(|write| frame(write)).collect();
        let bytes = frames.concat();
        let mut ends = vec![0];
        for frame in &frames {
            ends.push(ends[ends.len() - 1] + frame.len());
        }
        for cut in 0..=bytes.len() {
            let found = read(&bytes[..cut]);
            let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
            assert_eq!(found.writes, writes[..whole], "cut at {cut}");
            assert_eq!(found.is_torn, !ends.contains(&cut), "cut at {cut}");
        }
    }

    #[test]
    fn a_write_of_which_a_page_is_missing_is_torn() {
        let mut bytes = frame(&writes()[0]);
        let end = bytes.len();
        bytes[end - 20..].fill(0);
        assert_eq!(
            read(&bytes),
            Found {
                writes: Vec::new(),
                is_torn: true
            }
        );
    }
}
