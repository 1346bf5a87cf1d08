//! Random secrets, and digests.

use data_encoding::HEXLOWER;
use rand::RngCore as _;
use sha2::{Digest as _, Sha256};

/// Returns the SHA-256 of some bytes.
#[must_use]
pub fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Returns this number of random secret bytes as a text.
#[expect(
    clippy::disallowed_methods,
    reason = "a secret must not repeat: this is the operating system's randomness"
)]
pub(crate) fn random_hex(count: usize) -> String {
    let mut bytes = vec![0; count];
    rand::rng().fill_bytes(&mut bytes);
    HEXLOWER.encode(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_texts_differ() {
        assert_eq!(random_hex(4).len(), 8);
        assert_ne!(random_hex(16), random_hex(16));
    }
}
