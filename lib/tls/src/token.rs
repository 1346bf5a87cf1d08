//! Tokens: secrets with which users without a certificate authenticate.

use std::fmt;

use sha2::{Digest as _, Sha256};

use crate::secret::random_hex;

/// Prefix of every token, by which leaked secrets can be found.
const PREFIX: &str = "muster";
/// Separator of a token's parts, which no name contains.
const SEPARATOR: char = ':';
/// Random bytes of a token: it cannot be guessed.
const SECRET_BYTES: usize = 32;

/// A user's token, `muster:NAME:SECRET`. It appears in no log, and no replica stores it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Parses a printed token; surrounding white space is ignored.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// Creates a random token for a user.
    #[must_use]
    pub fn random(name: &str) -> Self {
        let secret = random_hex(SECRET_BYTES);
        Self(format!("{PREFIX}{SEPARATOR}{name}{SEPARATOR}{secret}"))
    }

    /// The full token, for its user or for sending.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The user that it claims to belong to; none if it is not a token.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        let rest = self.0.strip_prefix(PREFIX)?.strip_prefix(SEPARATOR)?;
        let (name, secret) = rest.split_once(SEPARATOR)?;
        (!name.is_empty() && secret.len() == 2 * SECRET_BYTES).then_some(name)
    }

    /// SHA-256 of its text, the only part that a cluster stores.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_user_and_is_never_shown_by_accident() {
        let token = Token::random("ada@lab");
        assert_eq!(token.name(), Some("ada@lab"));
        assert_eq!(Token::new(&format!(" {}\n", token.text())), token);
        assert_ne!(Token::random("ada@lab").hash(), token.hash());
        assert_eq!(format!("{token:?}"), "Token(..)");
        for strange in [
            "",
            "muster",
            "muster:ada",
            "muster:ada:12",
            "muster::00",
            "other:ada:00",
        ] {
            assert_eq!(Token::new(strange).name(), None, "{strange}");
        }
    }
}
