//! Hexadecimal texts, random bytes and digests.

use rand::RngCore as _;
use sha2::{Digest as _, Sha256};

/// Returns the SHA-256 of some bytes.
#[must_use]
pub fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Encodes each byte as two lower-case digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Decodes a hexadecimal text; none if it is invalid.
pub(crate) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let is_plain = text.len().is_multiple_of(2) && { text.bytes() }
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let pairs = (0..text.len()).step_by(2);
    let bytes = pairs.map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok());
    is_plain.then(|| bytes.collect())?
}

/// Returns this number of random secret bytes as a text.
#[expect(
    clippy::disallowed_methods,
    reason = "a secret must not repeat: this is the operating system's randomness"
)]
pub(crate) fn random_hex(count: usize) -> String {
    let mut bytes = vec![0; count];
    rand::rng().fill_bytes(&mut bytes);
    to_hex(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        assert_eq!(from_hex(&to_hex(&[0, 10, 255])), Some(vec![0, 10, 255]));
        assert_eq!(from_hex(""), Some(Vec::new()));
        for strange in ["0", "0g", "AB", "+1", "é"] {
            assert_eq!(from_hex(strange), None, "{strange}");
        }
        assert_eq!(random_hex(4).len(), 8);
        assert_ne!(random_hex(16), random_hex(16));
    }
}
