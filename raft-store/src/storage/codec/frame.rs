//! The frame around every stored record: `version (1) | CRC-32 of the rest (4, LE) | protobuf`.

use bytes::Bytes;
use prost::Message;

use crate::apply::state_machine::DecodeError;

/// Version of the frame and of the messages inside it.
pub(crate) const VERSION: u8 = 1;

/// Bytes before the message.
const HEAD_BYTES: usize = 5;

/// Encodes a message into a frame.
pub(crate) fn encode(message: &impl Message) -> Vec<u8> {
    let mut frame = Vec::with_capacity(HEAD_BYTES + message.encoded_len());
    frame.extend_from_slice(&[VERSION, 0, 0, 0, 0]);
    frame.extend_from_slice(&message.encode_to_vec());
    let checksum = crc32fast::hash(&frame[HEAD_BYTES..]);
    frame[1..HEAD_BYTES].copy_from_slice(&checksum.to_le_bytes());
    frame
}

/// Checks a frame and decodes its message; `bytes` fields share the frame's memory.
pub(crate) fn decode<T: Message + Default>(frame: Bytes) -> Result<T, DecodeError> {
    let Some(&version) = frame.first() else {
        return Err(DecodeError::malformed("a frame is empty"));
    };
    if version == 0 {
        // No build writes version 0: a bit has flipped in the byte that the checksum does not cover.
        return Err(DecodeError::malformed("a frame has version 0"));
    }
    if version > VERSION {
        return Err(DecodeError::NewerVersion {
            found: u32::from(version),
            supported: u32::from(VERSION),
        });
    }
    if frame.len() < HEAD_BYTES {
        return Err(DecodeError::malformed("a frame is cut short"));
    }
    let mut stored = [0; 4];
    stored.copy_from_slice(&frame[1..HEAD_BYTES]);
    let message = frame.slice(HEAD_BYTES..);
    if crc32fast::hash(&message) != u32::from_le_bytes(stored) {
        return Err(DecodeError::malformed("the checksum does not match"));
    }
    T::decode(message).map_err(|error| DecodeError::malformed(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_of_a_record_is_detected() {
        let frame = encode(&muster_proto::raft::v1::LogRecord::default());
        assert!(decode::<muster_proto::raft::v1::LogRecord>(Bytes::from(frame.clone())).is_ok());
        for bit in 0..frame.len() * 8 {
            let mut flipped = frame.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let read = decode::<muster_proto::raft::v1::LogRecord>(Bytes::from(flipped));
            assert!(read.is_err(), "bit {bit}");
        }
    }
}
