//! Envelopes with checksums, implemented independently of the product's code: a fuzzer does not find valid
//! digests, so targets add them to its input.

use std::io::Write as _;

use muster_proto::raft::v1::SnapshotTrailer;
use prost::Message as _;
use sha2::{Digest as _, Sha256};

/// A stored record's frame: version, CRC-32, message.
#[must_use]
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    let mut bytes = vec![1];
    bytes.extend(crc32fast::hash(message).to_le_bytes());
    bytes.extend(message);
    bytes
}

/// An LZ4 frame.
#[must_use]
pub(crate) fn lz4(bytes: &[u8]) -> Vec<u8> {
    let mut packed = lz4_flex::frame::FrameEncoder::new(Vec::new());
    crate::or_panic(packed.write_all(bytes), "memory takes everything");
    crate::or_panic(packed.finish(), "memory takes everything")
}

/// A snapshot file: a header message and packed data.
#[must_use]
pub(crate) fn snapshot(header: &[u8], packed: &[u8]) -> Vec<u8> {
    let mut bytes = b"MUSTSNAP".to_vec();
    bytes.extend(1u32.to_le_bytes());
    let trailer = SnapshotTrailer {
        data_frames: 1,
        compressed_bytes: packed.len() as u64,
    };
    let frames = [(1, header), (2, packed), (3, &*trailer.encode_to_vec())];
    for (kind, frame) in frames {
        bytes.push(kind);
        bytes.extend(length(frame));
        bytes.extend(crc32fast::hash(frame).to_le_bytes());
        bytes.extend(frame);
    }
    bytes
}

/// An unsealed backup of one chunk with this content.
#[must_use]
pub(crate) fn backup(content: &[u8]) -> Vec<u8> {
    let mut bytes = b"MUSTBACK".to_vec();
    bytes.extend(1u32.to_le_bytes());
    bytes.extend([0; 20]);
    let before = Sha256::digest(&bytes);
    let chunk = bytes.len();
    bytes.push(1);
    bytes.extend(length(content));
    bytes.extend(content);
    let mut digest = Sha256::new();
    digest.update(before);
    digest.update(&bytes[chunk..]);
    bytes.extend(digest.finalize());
    bytes
}

/// A length as encoded by these formats.
fn length(bytes: &[u8]) -> [u8; 4] {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_le_bytes()
}
