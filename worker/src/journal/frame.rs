//! One frame: length, checksum of the length, checksum of the payload, payload.
//!
//! The length has a checksum of its own, so that a damaged length is not taken for a frame that reaches
//! past the end of the file and everything behind it for torn.

use crate::limits::JOURNAL_FRAME_BYTES_MAX;

/// Bytes before the payload.
const HEAD_BYTES: usize = 12;

/// What lies at the beginning of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded<'bytes> {
    /// A frame of so many bytes.
    Whole { payload: &'bytes [u8], bytes: usize },
    /// A frame that was not written to its end; nothing whole follows.
    Torn,
    /// No frame, although a whole one follows.
    Damaged,
}

pub(super) fn encode(payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len())
        .unwrap_or(u32::MAX)
        .to_le_bytes();
    let mut frame = Vec::with_capacity(HEAD_BYTES + payload.len());
    frame.extend(length);
    frame.extend(crc32fast::hash(&length).to_le_bytes());
    frame.extend(crc32fast::hash(payload).to_le_bytes());
    frame.extend(payload);
    frame
}

pub(super) fn decode(bytes: &[u8]) -> Decoded<'_> {
    if let Some((payload, bytes)) = whole(bytes) {
        return Decoded::Whole { payload, bytes };
    }
    // Each frame was synced before the next was begun: a whole one further on proves that this one was
    // whole once.
    if (1..bytes.len()).any(|offset| whole(&bytes[offset..]).is_some()) {
        Decoded::Damaged
    } else {
        Decoded::Torn
    }
}

fn whole(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let head = bytes.get(..HEAD_BYTES)?;
    if number(&head[4..8]) != crc32fast::hash(&head[..4]) {
        return None;
    }
    let length = usize::try_from(number(&head[..4])).ok()?;
    // Zeros have a good checksum of nothing; we never write an empty frame.
    if length == 0 || length > JOURNAL_FRAME_BYTES_MAX {
        return None;
    }
    let payload = bytes.get(HEAD_BYTES..HEAD_BYTES + length)?;
    (number(&head[8..12]) == crc32fast::hash(payload)).then_some((payload, HEAD_BYTES + length))
}

fn number(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .rev()
        .fold(0, |sum, byte| (sum << 8) | u32::from(*byte))
}
