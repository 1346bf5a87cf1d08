//! Tokens of a foreign identity provider (OpenID Connect): JSON web tokens that one of its keys signed.
//!
//! Nothing is fetched: the keys are a file, which whoever runs the cluster keeps current.

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

/// Bytes of a token: those with hundreds of groups fit.
const JWT_BYTES_MAX: usize = 16 << 10;
/// Clocks may differ by so many seconds.
const CLOCKS_DIFFER_S: u64 = 60;

/// What a token must say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    /// Who issued it.
    pub issuer: String,
    /// For whom.
    pub audience: String,
    /// The claim that names the user.
    pub user_claim: String,
    /// The claim that names the user's groups.
    pub groups_claim: String,
}

/// What a token proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    /// The user.
    pub user: String,
    /// The user's groups.
    pub groups: Vec<String>,
    /// When it counts no more, in milliseconds since the Unix epoch.
    pub until_ms: u64,
}

/// Why a token proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwtError {
    /// It is something else, or damaged.
    #[error("is no JSON web token: {0}")]
    Form(&'static str),
    /// It is signed in a way that is not taken, or not at all.
    #[error("is signed by `{0}`, and RS256, ES256 and EdDSA alone are taken")]
    Algorithm(String),
    /// It names no key, or one that is not there.
    #[error("names a key that the JWKS file does not have{}", .0.as_ref().map(|kid| format!(" (`{kid}`)")).unwrap_or_default())]
    UnknownKey(Option<String>),
    /// The key is for another way to sign.
    #[error("is signed by another algorithm than its key is for")]
    KeyMismatch,
    /// The signature is not the key's.
    #[error("has a signature that is not its key's")]
    Signature,
    /// Somebody else issued it.
    #[error("was issued by another than `{0}`")]
    Issuer(String),
    /// It is for somebody else.
    #[error("is not for `{0}`")]
    Audience(String),
    /// Its time is over.
    #[error("expired {0} s ago")]
    Expired(u64),
    /// Its time has not come.
    #[error("does not count for {0} s yet")]
    NotYet(u64),
    /// It names no user, or one whose name none can have.
    #[error("names no user in `{0}` (letters, digits and `-._@`)")]
    User(String),
}

/// Whether a text may be a token of this kind, and no token of ours.
#[must_use]
pub fn is_jwt(text: &str) -> bool {
    text.split('.').count() == 3 && !text.contains(':')
}

/// The keys of an identity provider, as their file had them last. Clones share them.
#[derive(Clone, Debug)]
pub struct Jwks {
    shared: Arc<Watched<KeyFile>>,
}

#[derive(Debug)]
struct KeyFile {
    path: PathBuf,
}

impl Files for KeyFile {
    type Held = Keys;
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

    fn tell(&self, outcome: Result<(), JwksError>) {
        match outcome {
            Ok(()) => {
                tracing::info!(path = %self.path.display(), "the identity provider's keys have changed");
            }
            Err(error) => {
                tracing::error!(%error, "the identity provider's keys have changed and cannot be used: those from before stay");
            }
        }
    }
}

impl Jwks {
    /// Reads the file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn open(path: &Path) -> Result<Self, JwksError> {
        let path = path.to_owned();
        Ok(Self {
            shared: Arc::new(Watched::open(KeyFile { path })?),
        })
    }

    /// Looks at the file again and again, in a task that ends with the last clone. One that cannot be used is told of, and
    /// what was read before stays.
    pub fn keep_current(&self) {
        self.shared.keep_current();
    }

    /// What a token proves at this instant, in milliseconds since the Unix epoch.
    ///
    /// # Errors
    /// Why it proves nothing.
    pub fn check(&self, text: &str, expected: &Expected, now_ms: u64) -> Result<Proven, JwtError> {
        let payload = signed(text, &self.shared.current())?;
        proven(&payload, expected, now_ms)
    }
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    /// Extensions that must be understood: none is.
    crit: Option<Value>,
}

/// The claims of a token that one of the keys signed.
fn signed(text: &str, keys: &Keys) -> Result<Map<String, Value>, JwtError> {
    if text.len() > JWT_BYTES_MAX {
        return Err(JwtError::Form("it is larger than 16 KiB (JWT_BYTES_MAX)"));
    }
    let form = || JwtError::Form("it has not three parts");
    let (message, signature) = text.rsplit_once('.').ok_or_else(form)?;
    let (header, payload) = message.split_once('.').ok_or_else(form)?;
    let header = decoded(header)?;
    let header: Header = serde_json::from_slice(&header)
        .map_err(|_| JwtError::Form("its first part is no header"))?;
    if header.crit.is_some() {
        return Err(JwtError::Form("it has extensions that must be understood"));
    }
    keys.verify(
        (&header.alg, header.kid.as_deref()),
        message.as_bytes(),
        &decoded(signature)?,
    )?;
    let payload = decoded(payload)?;
    serde_json::from_slice(&payload).map_err(|_| JwtError::Form("its second part has no claims"))
}

fn decoded(part: &str) -> Result<Vec<u8>, JwtError> {
    let decoded = URL_SAFE_NO_PAD.decode(part);
    decoded.map_err(|_| JwtError::Form("a part of it is not base64url"))
}

fn proven(
    claims: &Map<String, Value>,
    expected: &Expected,
    now_ms: u64,
) -> Result<Proven, JwtError> {
    if claims.get("iss").and_then(Value::as_str) != Some(&expected.issuer) {
        return Err(JwtError::Issuer(expected.issuer.clone()));
    }
    if !texts(claims.get("aud")).contains(&expected.audience) {
        return Err(JwtError::Audience(expected.audience.clone()));
    }
    let now_s = now_ms / 1_000;
    let until = seconds(claims.get("exp")).ok_or(JwtError::Form("it does not say `exp`"))?;
    let until = until.saturating_add(CLOCKS_DIFFER_S);
    if now_s >= until {
        return Err(JwtError::Expired(now_s - until + CLOCKS_DIFFER_S));
    }
    if let Some(begin) = claims.get("nbf") {
        let begin = seconds(Some(begin)).ok_or(JwtError::Form("its `nbf` is no time"))?;
        if now_s.saturating_add(CLOCKS_DIFFER_S) < begin {
            return Err(JwtError::NotYet(begin - now_s));
        }
    }
    let user = claims.get(&expected.user_claim).and_then(Value::as_str);
    let user = user.filter(|user| is_name(user));
    Ok(Proven {
        user: { user.map(str::to_owned) }
            .ok_or_else(|| JwtError::User(expected.user_claim.clone()))?,
        groups: texts(claims.get(&expected.groups_claim)),
        until_ms: until.saturating_mul(1_000),
    })
}

/// A text, or a list of them.
fn texts(claim: Option<&Value>) -> Vec<String> {
    match claim {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(items)) => { items.iter() }
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect(),
        _ => Vec::new(),
    }
}

/// A time, which may have a fraction.
fn seconds(claim: Option<&Value>) -> Option<u64> {
    let claim = claim?;
    let whole = |seconds: f64| {
        let is_time = (0.0..1e15).contains(&seconds);
        // In this range every whole number is exact.
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
