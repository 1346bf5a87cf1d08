//! Tokens with which workers without a certificate join.

use std::fmt;

use data_encoding::HEXLOWER;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

use crate::peer_role::is_name;
use crate::secret::random_hex;

/// Prefix of every join token, by which leaked secrets can be found.
const PREFIX: &str = "muster-join";
/// Separator of a token's parts, which no name contains.
const SEPARATOR: char = ':';
/// Random bytes of its id: collisions are practically impossible.
const ID_BYTES: usize = 8;
/// Random bytes of its secret: it cannot be guessed.
const SECRET_BYTES: usize = 32;

/// A join token, `muster-join:ID:SECRET:AUTHORITIES`: by the last part a worker verifies the cluster before
/// it sends the rest. It appears in no log, and no replica stores it.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinToken(String);

impl JoinToken {
    /// Parses a printed token; surrounding white space is ignored.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.trim().to_owned())
    }

    /// Creates a random token for a cluster with these authorities.
    #[must_use]
    pub fn random(authorities: &AuthoritiesHash) -> Self {
        let (id, secret) = (random_hex(ID_BYTES), random_hex(SECRET_BYTES));
        let authorities = HEXLOWER.encode(&authorities.0);
        let parts = [PREFIX, &id, &secret, &authorities];
        Self(parts.join(&SEPARATOR.to_string()))
    }

    /// The full token, for workers or for sending.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Its id, which is not secret; none if it is not a join token.
    #[must_use]
    pub fn id(&self) -> Option<&str> {
        self.parts().map(|(id, _)| id)
    }

    /// The authorities of its cluster; none if it is not a join token.
    #[must_use]
    pub fn authorities(&self) -> Option<AuthoritiesHash> {
        self.parts().map(|(_, authorities)| authorities)
    }

    /// SHA-256 of its text, the only part that a cluster stores.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }

    fn parts(&self) -> Option<(&str, AuthoritiesHash)> {
        let mut parts = self.0.split(SEPARATOR);
        let (prefix, id) = (parts.next()?, parts.next()?);
        let (secret, authorities) = (parts.next()?, parts.next()?);
        let hash = HEXLOWER.decode(authorities.as_bytes()).ok()?;
        let authorities = AuthoritiesHash(hash.try_into().ok()?);
        let is_one = prefix == PREFIX
            && is_name(id)
            && secret.len() == 2 * SECRET_BYTES
            && parts.next().is_none();
        is_one.then_some((id, authorities))
    }
}

impl fmt::Debug for JoinToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JoinToken(..)")
    }
}

/// SHA-256 of a cluster's authorities: a worker that has it cannot be redirected to another cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuthoritiesHash([u8; 32]);

impl AuthoritiesHash {
    /// Hash of certificates in PEM, in any order; none if there are none or the text is invalid.
    #[must_use]
    pub fn of(pem: &str) -> Option<Self> {
        let certificates = CertificateDer::pem_slice_iter(pem.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .ok()?;
        let mut certificates: Vec<&[u8]> = certificates.iter().map(AsRef::as_ref).collect();
        certificates.sort_unstable();
        certificates.dedup();
        if certificates.is_empty() {
            return None;
        }
        let mut hash = Sha256::new();
        for certificate in &certificates {
            // Certificates contain their length.
            hash.update(certificate);
        }
        Some(Self(hash.finalize().into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: AuthoritiesHash = AuthoritiesHash([7; 32]);

    #[test]
    fn a_join_token_names_itself_and_its_cluster_and_is_never_shown_by_accident() {
        let token = JoinToken::random(&HASH);
        assert_eq!(token.authorities(), Some(HASH));
        assert!(token.id().is_some_and(|id| id.len() == 2 * ID_BYTES));
        assert_eq!(JoinToken::new(&format!(" {}\n", token.text())), token);
        assert_ne!(JoinToken::random(&HASH).hash(), token.hash());
        assert_eq!(format!("{token:?}"), "JoinToken(..)");
    }

    #[test]
    fn malformed_join_tokens_have_no_id() {
        let token = JoinToken::random(&HASH);
        let whole = token.text();
        let strange = [
            String::new(),
            "muster-join".to_owned(),
            whole.replace("muster-join", "muster"),
            format!("{whole}:00"),
            format!("{whole}00"),
            whole.replace(&"07".repeat(32), &"AB".repeat(32)),
            whole.replace(token.id().unwrap_or_default(), "no name"),
            whole.get(..whole.len() - 1).unwrap_or_default().to_owned(),
        ];
        for text in strange {
            assert_eq!(JoinToken::new(&text).id(), None, "{text}");
        }
    }

    #[test]
    fn authorities_count_in_any_order_and_all_of_them() {
        let certificate = |letter: char| {
            let body = letter.to_string().repeat(8);
            format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
        };
        let (one, other) = (certificate('A'), certificate('B'));
        let both = AuthoritiesHash::of(&format!("{one}{other}"));
        assert!(both.is_some());
        assert_eq!(both, AuthoritiesHash::of(&format!("{other}{one}")));
        assert_ne!(both, AuthoritiesHash::of(&one));
        assert_eq!(AuthoritiesHash::of(""), None);
    }
}
