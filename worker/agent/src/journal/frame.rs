//! Frame format: length, checksum of the length, checksum of the payload, payload.
//!
//! The length has a checksum of its own: otherwise a damaged length could look like a frame that reaches
//! past the end of the file, and everything behind it would be taken for torn.

use std::io;

/// Bytes before the payload.
const HEAD_BYTES: usize = 12;

/// Result of decoding the beginning of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded<'bytes> {
    /// A complete frame and its length.
    Whole { payload: &'bytes [u8], bytes: usize },
    /// An incompletely written frame, with no complete one behind it.
    Torn,
    /// Invalid, although a complete frame follows.
    Damaged,
}

/// Encodes a frame. Every encoded frame can be decoded again: only the length field limits its size.
///
/// # Errors
/// A payload of 4 GiB or more.
pub(super) fn encode(payload: &[u8]) -> io::Result<Vec<u8>> {
    let length = u32::try_from(payload.len())
        .map_err(io::Error::other)?
        .to_le_bytes();
    let mut frame = Vec::with_capacity(HEAD_BYTES + payload.len());
    frame.extend(length);
    frame.extend(crc32fast::hash(&length).to_le_bytes());
    frame.extend(crc32fast::hash(payload).to_le_bytes());
    frame.extend(payload);
    Ok(frame)
}

pub(super) fn decode(bytes: &[u8]) -> Decoded<'_> {
    if let Some((payload, bytes)) = whole(bytes) {
        return Decoded::Whole { payload, bytes };
    }
    // Each frame was synced before the next was begun: a complete one further on proves that this one was
    // complete once.
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
    // Zeros have a valid checksum of an empty payload; empty frames are never written.
    if length == 0 {
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_was_written_is_read_however_long_it_is() {
        let long = vec![b'x'; (64 << 20) + 1];
        let frame = encode(&long).unwrap();
        let Decoded::Whole { payload, bytes } = decode(&frame) else {
            panic!("it is not whole");
        };
        assert!(payload == long && bytes == frame.len());
    }
}
