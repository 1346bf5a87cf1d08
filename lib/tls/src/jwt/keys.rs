//! Keys of an identity provider: a JSON web key set.

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents,
    UnparsedPublicKey,
};
use serde::Deserialize;

use crate::jwt::JwtError;

/// Error of an unusable key file.
#[derive(Debug, thiserror::Error)]
pub enum JwksError {
    /// The file cannot be read.
    #[error("oidc.jwks_file: cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file has invalid content.
    #[error("oidc.jwks_file: {} {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The problem with it.
        problem: String,
    },
}

/// Keys of the supported kinds; others are skipped.
#[derive(Debug)]
pub(super) struct Keys(Vec<Key>);

#[derive(Debug)]
struct Key {
    kid: Option<String>,
    material: Material,
}

#[derive(Debug)]
enum Material {
    Rsa {
        n: Vec<u8>,
        e: Vec<u8>,
    },
    /// A point of P-256, uncompressed.
    P256(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Deserialize)]
struct KeySet {
    keys: Vec<JsonKey>,
}

/// One key as the file has it (RFC 7517).
#[derive(Deserialize)]
struct JsonKey {
    kty: String,
    kid: Option<String>,
    alg: Option<String>,
    #[serde(rename = "use")]
    purpose: Option<String>,
    crv: Option<String>,
    n: Option<String>,
    e: Option<String>,
    x: Option<String>,
    y: Option<String>,
}

impl Keys {
    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, JwksError> {
        let wrong = |problem: String| JwksError::Content {
            path: path.to_owned(),
            problem,
        };
        let set: KeySet =
            serde_json::from_str(text).map_err(|error| wrong(format!("is not a JWKS: {error}")))?;
        let keys: Vec<Key> = set.keys.into_iter().filter_map(key).collect();
        if keys.is_empty() {
            let problem = "contains no key for RS256, ES256 or EdDSA".to_owned();
            return Err(wrong(problem));
        }
        Ok(Self(keys))
    }

    /// Verifies a signature with the named key, or with the only key if none is named.
    pub(super) fn verify(
        &self,
        algorithm: &str,
        kid: Option<&str>,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), JwtError> {
        if !["RS256", "ES256", "EdDSA"].contains(&algorithm) {
            return Err(JwtError::Algorithm(algorithm.chars().take(32).collect()));
        }
        let found = match (kid, self.0.as_slice()) {
            (None, [only]) => Some(only),
            (None, _) => None,
            (Some(kid), keys) => keys.iter().find(|key| key.kid.as_deref() == Some(kid)),
        };
        let named = || kid.map(|kid| kid.chars().take(128).collect());
        let key = found.ok_or_else(|| JwtError::UnknownKey(named()))?;
        let verified = match (algorithm, &key.material) {
            ("RS256", Material::Rsa { n, e }) => RsaPublicKeyComponents { n, e }.verify(
                &RSA_PKCS1_2048_8192_SHA256,
                message,
                signature,
            ),
            ("ES256", Material::P256(point)) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature)
            }
            ("EdDSA", Material::Ed25519(key)) => {
                UnparsedPublicKey::new(&ED25519, key).verify(message, signature)
            }
            _ => return Err(JwtError::KeyMismatch),
        };
        verified.map_err(|_| JwtError::Signature)
    }
}

/// Converts a key if its algorithm is supported.
fn key(json: JsonKey) -> Option<Key> {
    if json
        .purpose
        .as_deref()
        .is_some_and(|purpose| purpose != "sig")
    {
        return None;
    }
    let (x, y) = (bytes(json.x.as_ref()), bytes(json.y.as_ref()));
    let (algorithm, material) = match (json.kty.as_str(), json.crv.as_deref()) {
        ("RSA", _) => {
            let (n, e) = (bytes(json.n.as_ref())?, bytes(json.e.as_ref())?);
            ("RS256", Material::Rsa { n, e })
        }
        ("EC", Some("P-256")) => {
            let point = [vec![4], x?, y?].concat();
            ("ES256", Material::P256(point))
        }
        ("OKP", Some("Ed25519")) => ("EdDSA", Material::Ed25519(x?)),
        _ => return None,
    };
    let is_for_another = json.alg.is_some_and(|declared| declared != algorithm);
    (!is_for_another).then_some(Key {
        kid: json.kid,
        material,
    })
}

/// Decodes a number or a point of a key.
fn bytes(text: Option<&String>) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(text?).ok()
}
