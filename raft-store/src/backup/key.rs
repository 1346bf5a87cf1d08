//! Encryption key of backups.

use std::fmt;

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
        let digits = text.trim().as_bytes();
        if digits.len() != 2 * KEY_BYTES {
            return Err(KeyError);
        }
        let mut key = [0; KEY_BYTES];
        for (byte, pair) in key.iter_mut().zip(digits.chunks_exact(2)) {
            let value = |digit: u8| char::from(digit).to_digit(16).ok_or(KeyError);
            let value = value(pair[0])? * 16 + value(pair[1])?;
            *byte = u8::try_from(value).map_err(|_| KeyError)?;
        }
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
