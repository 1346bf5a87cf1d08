//! An identity provider (OpenID Connect): its key, the file that publishes it, and the tokens that it signs.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use muster_client::Token;
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use tempfile::TempDir;

const ISSUER: &str = "https://idp.example";
const AUDIENCE: &str = "muster";
const KEY_ID: &str = "key-1";
/// File with the provider's keys.
const JWKS: &str = "jwks.json";

/// An identity provider with one key.
#[derive(Debug)]
pub struct IdentityProvider {
    key: Ed25519KeyPair,
    folder: TempDir,
}

impl IdentityProvider {
    /// Creates a provider with a new key.
    ///
    /// # Panics
    /// If the key cannot be created or published.
    #[must_use]
    pub fn create() -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let key = Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let public = encoded(key.public_key().as_ref());
        let jwks = json!({"keys": [{"kty": "OKP", "kid": KEY_ID, "crv": "Ed25519", "x": public}]});
        fs::write(folder.path().join(JWKS), jwks.to_string()).unwrap();
        Self { key, folder }
    }

    /// Settings of replicas that accept its tokens (`oidc`), with the role of each group.
    #[must_use]
    pub fn settings(&self, groups: &[(&str, &str)]) -> Value {
        let group =
            |(group, role): &(&str, &str)| json!({"group": group, "role": role, "queues": []});
        json!({
            "issuer": ISSUER,
            "audience": AUDIENCE,
            "jwks_file": self.folder.path().join(JWKS),
            "groups": groups.iter().map(group).collect::<Vec<_>>(),
        })
    }

    /// A token of a user in these groups that is valid for the given number of seconds, or expired that
    /// long ago if negative.
    ///
    /// # Panics
    /// If this machine's clock is before 1970.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "replicas check tokens against the machine's clock"
    )]
    pub fn token(&self, user: &str, groups: &[&str], seconds: i64) -> Token {
        let now_s = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        let header = json!({"alg": "EdDSA", "kid": KEY_ID});
        let claims = json!({
            "iss": ISSUER,
            "aud": AUDIENCE,
            "exp": now_s.saturating_add_signed(seconds),
            "sub": user,
            "groups": groups,
        });
        let parts = [header, claims].map(|part| encoded(part.to_string().as_bytes()));
        let message = parts.join(".");
        let signature = encoded(self.key.sign(message.as_bytes()).as_ref());
        Token::new(&format!("{message}.{signature}"))
    }
}

fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}
