//! Complete state of a run for an exact resume, as versioned bytes.

use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::model::WEIGHTS;

/// Identifies the format and its version.
const MAGIC: &[u8; 8] = b"MTRAIN01";
/// Seed, batch, step, restarts, first loss (as bits).
const HEADER_BYTES: usize = MAGIC.len() + 8 + 8 + 8 + 4 + 4;
/// XXH3-64. Not CRC-32: the CRC of bytes followed by their own CRC is a constant, and the file's CRC is its
/// digest.
const CHECKSUM_BYTES: usize = 8;
/// Fixed length of an encoded state.
pub(crate) const STATE_BYTES: usize = HEADER_BYTES + 4 * WEIGHTS + CHECKSUM_BYTES;

/// The state of a run between two steps. The data order is a function of `seed` and `step`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TrainingState {
    /// Seed of weights and data order.
    pub(crate) seed: u64,
    /// Batch size over all ranks.
    pub(crate) batch: u64,
    /// Completed steps.
    pub(crate) step: u64,
    /// Resumes in the chain of checkpoints that led here.
    pub(crate) restarts: u32,
    /// Mean loss of the very first step; NaN before it.
    pub(crate) loss_first: f32,
    /// The network, [`WEIGHTS`] numbers.
    pub(crate) weights: Vec<f32>,
}

/// Reason why bytes are not a valid state.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StateError {
    /// Truncated, or followed by other data.
    #[error("has {found} bytes instead of {STATE_BYTES}")]
    Length {
        /// Number of bytes.
        found: usize,
    },
    /// A file of another program or another version.
    #[error("starts with {found:?} instead of {MAGIC:?}: another format or version")]
    Magic {
        /// The first bytes.
        found: Vec<u8>,
    },
    /// The content does not match its checksum.
    #[error("has checksum {found:016x} instead of {written:016x}: it is damaged")]
    Checksum {
        /// Checksum of the bytes.
        found: u64,
        /// Checksum recorded when they were written.
        written: u64,
    },
}

impl TrainingState {
    /// Encodes the state as [`STATE_BYTES`] bytes: magic, header, weights, XXH3-64 of all that;
    /// little-endian.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(STATE_BYTES);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&self.seed.to_le_bytes());
        bytes.extend_from_slice(&self.batch.to_le_bytes());
        bytes.extend_from_slice(&self.step.to_le_bytes());
        bytes.extend_from_slice(&self.restarts.to_le_bytes());
        bytes.extend_from_slice(&self.loss_first.to_bits().to_le_bytes());
        for weight in &self.weights {
            bytes.extend_from_slice(&weight.to_bits().to_le_bytes());
        }
        let checksum = xxh3_64(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        assert_eq!(bytes.len(), STATE_BYTES, "a state has a fixed length");
        bytes
    }

    /// Decodes a state written by [`encode`](Self::encode).
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        if bytes.len() >= MAGIC.len() && !bytes.starts_with(MAGIC) {
            return Err(StateError::Magic {
                found: bytes[..MAGIC.len()].to_vec(),
            });
        }
        if bytes.len() != STATE_BYTES {
            return Err(StateError::Length { found: bytes.len() });
        }
        let (content, checksum) = bytes.split_at(STATE_BYTES - CHECKSUM_BYTES);
        let written = u64::from_le_bytes(array(checksum));
        let found = xxh3_64(content);
        if found != written {
            return Err(StateError::Checksum { found, written });
        }
        let header = &content[MAGIC.len()..HEADER_BYTES];
        Ok(Self {
            seed: u64::from_le_bytes(array(&header[0..8])),
            batch: u64::from_le_bytes(array(&header[8..16])),
            step: u64::from_le_bytes(array(&header[16..24])),
            restarts: u32::from_le_bytes(array(&header[24..28])),
            loss_first: f32::from_bits(u32::from_le_bytes(array(&header[28..32]))),
            weights: content[HEADER_BYTES..]
                .chunks_exact(4)
                .map(|chunk| f32::from_bits(u32::from_le_bytes(array(chunk))))
                .collect(),
        })
    }

    /// Digest of the exact bits of the weights.
    pub(crate) fn weights_digest(&self) -> String {
        let bytes: Vec<u8> = self
            .weights
            .iter()
            .flat_map(|weight| weight.to_bits().to_le_bytes())
            .collect();
        format!("xxh3-128:{:032x}", xxh3_128(&bytes))
    }
}

fn array<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.try_into().expect("the caller slices exactly N bytes")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;
    use crate::model::Model;

    fn state() -> TrainingState {
        let weights = Model::random(5).weights().to_vec();
        TrainingState {
            seed: 5,
            batch: 120,
            step: 77,
            restarts: 2,
            loss_first: 2.5,
            weights,
        }
    }

    #[test]
    fn a_written_state_is_read_back_bit_for_bit() {
        let state = state();
        assert_eq!(TrainingState::decode(&state.encode()).unwrap(), state);
    }

    #[test]
    fn every_damaged_byte_is_detected() {
        let good = state().encode();
        for position in (0..good.len()).step_by(97).chain([good.len() - 1]) {
            let mut bad = good.clone();
            bad[position] ^= 0x10;
            assert!(TrainingState::decode(&bad).is_err(), "byte {position}");
        }
    }

    #[test]
    fn a_truncated_state_and_a_newer_format_have_errors_of_their_own() {
        let good = state().encode();
        let cut = TrainingState::decode(&good[..100]).unwrap_err();
        assert_eq!(cut, StateError::Length { found: 100 });
        let mut newer = good;
        newer[7] = b'2';
        assert!(matches!(
            TrainingState::decode(&newer),
            Err(StateError::Magic { .. })
        ));
    }
}
