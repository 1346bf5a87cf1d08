//! Encryption key of backups.

use std::fmt;

use data_encoding::HEXLOWER_PERMISSIVE;

/// Bytes of a key.
const KEY_BYTES: usize = 32;

/// Key of 256 bits; never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

/// The text is not a valid key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a key is 64 hexadecimal digits on one line; `openssl rand -hex 32` makes one")]
pub struct KeyError;

impl Key {
    /// Parses a key: 64 hexadecimal digits, optionally surrounded by white space.
    ///
    /// # Errors
    /// [`KeyError`] for any other text, which is not repeated in the error.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let bytes = HEXLOWER_PERMISSIVE
            .decode(text.trim().as_bytes())
            .map_err(|_| KeyError)?;
        let key = bytes.try_into().map_err(|_| KeyError)?;
        Ok(Self(key))
    }

    pub(super) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Key(..)")
    }
}
