//! Tokens of an external identity provider (OpenID Connect): JSON web tokens signed by one of its keys.
//!
//! Nothing is fetched: the keys are a file, which the operator of the cluster keeps current.

mod keys;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::peer_role::is_name;
use crate::watched::{Files, Watched};
pub use keys::JwksError;
use keys::Keys;

/// Largest token in bytes: tokens with hundreds of groups fit.
const JWT_BYTES_MAX: usize = 16 << 10;
/// Allowed clock skew in seconds.
const CLOCKS_DIFFER_S: u64 = 60;

/// Required content of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequiredClaims {
    /// Issuer.
    pub issuer: String,
    /// Audience.
    pub audience: String,
    /// Claim that names the user.
    pub user_claim: String,
    /// Claim that names the user's groups.
    pub groups_claim: String,
}

/// Identity proven by a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The user.
    pub user: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// Expiry, in milliseconds since the Unix epoch.
    pub until_ms: u64,
}

/// Error of an invalid token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// It is not a token, or damaged.
    #[error("is not a JSON web token: {0}")]
    Malformed(&'static str),
    /// Its algorithm is unsupported, or it is unsigned.
    #[error("is signed by `{0}`; only RS256, ES256 and EdDSA are supported")]
    Algorithm(String),
    /// It names no key, or an unknown one.
    #[error(
        "names a key that is not in the JWKS file{}",
        .0.as_ref().map(|kid| format!(" (`{kid}`)")).unwrap_or_default()
    )]
    UnknownKey(Option<String>),
    /// The key is for another algorithm.
    #[error("is signed by a different algorithm than its key's")]
    KeyMismatch,
    /// The signature does not match the key.
    #[error("has an invalid signature")]
    Signature,
    /// It has another issuer.
    #[error("was not issued by `{0}`")]
    Issuer(String),
    /// It has another audience.
    #[error("is not for `{0}`")]
    Audience(String),
    /// It has expired.
    #[error("expired {0} s ago")]
    Expired(u64),
    /// It is not valid yet.
    #[error("is not valid for another {0} s")]
    NotYet(u64),
    /// It names no user, or an invalid one.
    #[error("has no valid user name in `{0}` (letters, digits and `-._@`)")]
    User(String),
}

/// Whether a text may be a token of this kind, as opposed to one of ours.
#[must_use]
pub fn is_jwt(text: &str) -> bool {
    text.split('.').count() == 3 && !text.contains(':')
}

/// Keys of an identity provider, as last read from their file. Clones share them.
#[derive(Clone, Debug)]
pub struct Jwks {
    shared: Arc<Watched<KeyFile>>,
}

#[derive(Debug)]
struct KeyFile {
    path: PathBuf,
}

impl Files for KeyFile {
    type Content = Keys;
    type Error = JwksError;

    fn paths(&self) -> Vec<&Path> {
        vec![&self.path]
    }

    fn read(&self) -> Result<Keys, JwksError> {
        let path = &self.path;
        let text = fs::read_to_string(path).map_err(|source| JwksError::Read {
            path: path.clone(),
            source,
        })?;
        Keys::parse(path, &text)
    }

    fn on_reload(&self, outcome: Result<(), JwksError>) {
        match outcome {
            Ok(()) => {
                tracing::info!(path = %self.path.display(), "the identity provider's keys have changed");
            }
            Err(error) => {
                tracing::error!(
                    %error,
                    "the identity provider's keys have changed and cannot be used: the previous ones stay in use"
                );
            }
        }
    }
}

impl Jwks {
    /// Reads the file.
    ///
    /// # Errors
    /// The problem with it.
    pub fn open(path: &Path) -> Result<Self, JwksError> {
        let path = path.to_owned();
        Ok(Self {
            shared: Arc::new(Watched::open(KeyFile { path })?),
        })
    }

    /// Polls the file for changes, in a task that ends with the last clone. An unusable file is logged, and
    /// the previous keys stay in use.
    pub fn keep_current(&self) {
        self.shared.keep_current();
    }

    /// Returns the identity proven by a token at this time, in milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// [`JwtError`] of an invalid token.
    pub fn check(
        &self,
        text: &str,
        expected: &RequiredClaims,
        now_ms: u64,
    ) -> Result<Identity, JwtError> {
        let payload = signed(text, &self.shared.current())?;
        proven(&payload, expected, now_ms)
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that must be understood: none is supported.
    crit: Option<Value>,
}

/// Returns the claims of a token signed by one of the keys.
fn signed(text: &str, keys: &Keys) -> Result<Map<String, Value>, JwtError> {
    if text.len() > JWT_BYTES_MAX {
        return Err(JwtError::Malformed(
            "it is larger than 16 KiB (JWT_BYTES_MAX)",
        ));
    }
    let form = || JwtError::Malformed("it does not have three parts");
    let (message, signature) = text.rsplit_once('.').ok_or_else(form)?;
    let (header, payload) = message.split_once('.').ok_or_else(form)?;
    let header: Header = serde_json::from_slice(&decoded(header)?)
        .map_err(|_| JwtError::Malformed("its first part is not a header"))?;
    if header.crit.is_some() {
        return Err(JwtError::Malformed(
            "it has extensions that must be understood",
        ));
    }
    keys.verify(
        &header.alg,
        header.kid.as_deref(),
        message.as_bytes(),
        &decoded(signature)?,
    )?;
    let payload = decoded(payload)?;
    serde_json::from_slice(&payload)
        .map_err(|_| JwtError::Malformed("its second part does not contain claims"))
}

fn decoded(part: &str) -> Result<Vec<u8>, JwtError> {
    let decoded = URL_SAFE_NO_PAD.decode(part);
    decoded.map_err(|_| JwtError::Malformed("a part is not base64url"))
}

fn proven(
    claims: &Map<String, Value>,
    expected: &RequiredClaims,
    now_ms: u64,
) -> Result<Identity, JwtError> {
    if claims.get("iss").and_then(Value::as_str) != Some(&expected.issuer) {
        return Err(JwtError::Issuer(expected.issuer.clone()));
    }
    if !texts(claims.get("aud")).contains(&expected.audience) {
        return Err(JwtError::Audience(expected.audience.clone()));
    }
    let now_s = now_ms / 1_000;
    let until = seconds(claims.get("exp"))
        .ok_or(JwtError::Malformed("it has no `exp` claim"))?
        .saturating_add(CLOCKS_DIFFER_S);
    if now_s >= until {
        return Err(JwtError::Expired(now_s - until + CLOCKS_DIFFER_S));
    }
    if let Some(begin) = claims.get("nbf") {
        let begin = seconds(Some(begin)).ok_or(JwtError::Malformed("its `nbf` is not a time"))?;
        if now_s.saturating_add(CLOCKS_DIFFER_S) < begin {
            return Err(JwtError::NotYet(begin - now_s));
        }
    }
    let user = claims
        .get(&expected.user_claim)
        .and_then(Value::as_str)
        .filter(|user| is_name(user));
    Ok(Identity {
        user: user
            .map(str::to_owned)
            .ok_or_else(|| JwtError::User(expected.user_claim.clone()))?,
        groups: texts(claims.get(&expected.groups_claim)),
        until_ms: until.saturating_mul(1_000),
    })
}

/// A text, or a list of them.
fn texts(claim: Option<&Value>) -> Vec<String> {
    match claim {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(items)) => items
            .iter()
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect(),
        _ => Vec::new(),
    }
}

/// A time in seconds, which may have a fraction.
fn seconds(claim: Option<&Value>) -> Option<u64> {
    let claim = claim?;
    let whole = |seconds: f64| {
        let is_time = (0.0..1e15).contains(&seconds);
        // Every whole number in this range is exact.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the range is checked"
        )]
        is_time.then_some(seconds as u64)
    };
    claim.as_u64().or_else(|| claim.as_f64().and_then(whole))
}

#[cfg(test)]
mod tests;
