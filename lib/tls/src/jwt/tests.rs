//! Valid and invalid tokens, one row each.

#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
};
use serde_json::json;

use super::*;

/// An RSA key of 2,048 bits, discarded after this token was signed.
const RSA_N: &str = "\
    w_bS8gBz0hytyJp4tIJ4BVv16uiLzE7Dtz2WP3_4D8RHmOU6bPX3Zwir5dgxA3LMuh_jbZxJgyf5vRb-2CVcJOMQ2-9461oYC9RJ\
    eiqVJmoWiQkp6Di1apYNCklbobohQrq13PnrzW8gI7iMzysDfo3lF9RbrEjj4j8S-o09sS62WEw-wWp0ngkkJ3WYVPK1tM_jlTKs\
    Dx0JwWQmzNr3kZqMrLRGT_UYAj5MV26ZK1SwvTnD_Izxo01WrjBPJUj1OengGctt9c2yhUTjjj500zp_j70lF_zwJFRnxYbTnGut\
    nf4QbWLjOix0PBdlWRjaTARz2I8hNhCZczkLlaxd1w";
/// Its token: for `muster` by `https://idp.example`, from 2001 until 2033, of `ada` in `ml` and `staff`.
const RSA_SIGNED: &str = "\
    eyJhbGciOiAiUlMyNTYiLCAidHlwIjogIkpXVCIsICJraWQiOiAicnNhLTEifQ.eyJpc3MiOiAiaHR0cHM6Ly9pZHAuZXhhbXBsZ\
    SIsICJhdWQiOiBbIm11c3RlciIsICJvdGhlciJdLCAiZXhwIjogMjAwMDAwMDAwMCwgIm5iZiI6IDEwMDAwMDAwMDAsICJzdWIiO\
    iAiYWRhIiwgImdyb3VwcyI6IFsibWwiLCAic3RhZmYiXX0.uT7U7j8B7eXn-imuAYRzBkIFcO4V4JZC3keTzYj-wFst_pCenSi6q\
    nQiFisJ7P6FNJlPzCvkoO9j1nhwrwWierJq8MCGF-X4H0vM0t-IAdKnZTqjVNyhnUcxNu68j8zkaGaJAOJU-J6VwCEHAomufyMfH\
    ZKclX8n_7tIm4UBeEzP3a0325LIuGSu64OOickvrRjhnXrbfHdnpmctep8Qo_ykR6WQrjFYrFqoy5wQbaBXJnWHSEa3g12xkGAwH\
    MqA-etXF33oXLYc_vSnfARhTDmv_KTF6cbpHd6Fy5TgHpv-BOFbXC5_mgHZYi-BHp7Rdgn13lagcAF4FZw8W5M-mg";
const NOW_S: u64 = 1_800_000_000;

fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// An identity provider with a key of every kind.
struct Provider {
    edwards: Ed25519KeyPair,
    curve: EcdsaKeyPair,
}

impl Provider {
    fn new() -> Self {
        let random = SystemRandom::new();
        let edwards = Ed25519KeyPair::generate_pkcs8(&random).unwrap();
        let curve =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        let signing = &ECDSA_P256_SHA256_FIXED_SIGNING;
        Self {
            edwards: Ed25519KeyPair::from_pkcs8(edwards.as_ref()).unwrap(),
            curve: EcdsaKeyPair::from_pkcs8(signing, curve.as_ref(), &random).unwrap(),
        }
    }

    fn jwks(&self) -> Value {
        let point = self.curve.public_key().as_ref();
        json!({"keys": [
            {"kty": "RSA", "kid": "rsa-1", "use": "sig", "alg": "RS256", "n": RSA_N, "e": "AQAB"},
            {"kty": "EC", "kid": "ec-1", "crv": "P-256", "x": encoded(&point[1..33]), "y": encoded(&point[33..])},
            {"kty": "OKP", "kid": "ed-1", "crv": "Ed25519", "x": encoded(self.edwards.public_key().as_ref())},
            {"kty": "oct", "kid": "hmac-1", "k": "c2VjcmV0"},
            {"kty": "RSA", "kid": "enc-1", "use": "enc", "n": RSA_N, "e": "AQAB"},
        ]})
    }

    fn signed(&self, header: &Value, claims: &Value) -> String {
        let parts = [header, claims].map(|part| encoded(part.to_string().as_bytes()));
        let message = parts.join(".");
        let signature = if header["alg"] == "ES256" {
            let random = SystemRandom::new();
            let signature = self.curve.sign(&random, message.as_bytes()).unwrap();
            signature.as_ref().to_vec()
        } else {
            self.edwards.sign(message.as_bytes()).as_ref().to_vec()
        };
        format!("{message}.{}", encoded(&signature))
    }
}

fn open(jwks: &Value) -> (tempfile::TempDir, Jwks) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("jwks.json");
    fs::write(&path, jwks.to_string()).unwrap();
    let opened = Jwks::open(&path).unwrap();
    (folder, opened)
}

fn expected() -> RequiredClaims {
    RequiredClaims {
        issuer: "https://idp.example".to_owned(),
        audience: "muster".to_owned(),
        user_claim: "sub".to_owned(),
        groups_claim: "groups".to_owned(),
    }
}

fn claims() -> Value {
    json!({"iss": "https://idp.example", "aud": "muster", "exp": NOW_S + 600, "sub": "ada", "groups": ["ml"]})
}

/// Claims with some of them changed; null removes one.
fn with(changes: &Value) -> Value {
    let mut claims = claims();
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        }
    }
    claims
}

#[test]
fn tokens_signed_by_every_kind_of_key_are_accepted() {
    let provider = Provider::new();
    let (_folder, jwks) = open(&provider.jwks());
    let check = |text: &str| jwks.check(text, &expected(), NOW_S * 1_000);
    for (alg, kid) in [("EdDSA", "ed-1"), ("ES256", "ec-1")] {
        let proven = check(&provider.signed(&json!({"alg": alg, "kid": kid}), &claims())).unwrap();
        assert_eq!(
            (proven.user.as_str(), proven.groups),
            ("ada", vec!["ml".to_owned()])
        );
        assert_eq!(proven.until_ms, (NOW_S + 600 + CLOCKS_DIFFER_S) * 1_000);
    }
    let proven = check(RSA_SIGNED).unwrap();
    assert_eq!(proven.groups, ["ml", "staff"]);
    // An issuer with one key need not name it.
    let (_folder, only) = open(&json!({"keys": [provider.jwks()["keys"][2]]}));
    let unnamed = provider.signed(&json!({"alg": "EdDSA"}), &claims());
    assert!(only.check(&unnamed, &expected(), NOW_S * 1_000).is_ok());
    assert_eq!(check(&unnamed), Err(JwtError::UnknownKey(None)));
}

#[test]
fn tokens_without_the_required_claims_are_rejected() {
    let provider = Provider::new();
    let (_folder, jwks) = open(&provider.jwks());
    let user = || JwtError::User("sub".to_owned());
    let issuer = || JwtError::Issuer("https://idp.example".to_owned());
    let audience = || JwtError::Audience("muster".to_owned());
    let rows = [
        (json!({"iss": "https://evil.example"}), issuer()),
        (json!({"iss": null}), issuer()),
        (json!({"aud": "other"}), audience()),
        (json!({"aud": ["other", "musters"]}), audience()),
        (json!({"aud": null}), audience()),
        (json!({"exp": NOW_S - 100}), JwtError::Expired(100)),
        (
            json!({"exp": null}),
            JwtError::Malformed("it has no `exp` claim"),
        ),
        (
            json!({"exp": "never"}),
            JwtError::Malformed("it has no `exp` claim"),
        ),
        (json!({"nbf": NOW_S + 100}), JwtError::NotYet(100)),
        (
            json!({"nbf": "soon"}),
            JwtError::Malformed("its `nbf` is not a time"),
        ),
        (json!({"sub": null}), user()),
        (json!({"sub": "no name"}), user()),
        (json!({"sub": ""}), user()),
        (json!({"sub": ["ada"]}), user()),
    ];
    for (changes, error) in rows {
        let text = provider.signed(&json!({"alg": "EdDSA", "kid": "ed-1"}), &with(&changes));
        let checked = jwks.check(&text, &expected(), NOW_S * 1_000);
        assert_eq!(checked, Err(error), "{changes}");
    }
    for fine in [
        json!({"exp": NOW_S - 30}),
        json!({"nbf": NOW_S + 30}),
        json!({"exp": 1_800_000_000.5}),
        json!({"aud": ["other", "muster"]}),
        json!({"groups": null}),
    ] {
        let text = provider.signed(&json!({"alg": "EdDSA", "kid": "ed-1"}), &with(&fine));
        assert!(
            jwks.check(&text, &expected(), NOW_S * 1_000).is_ok(),
            "{fine}"
        );
    }
}

#[test]
fn tokens_with_another_algorithm_or_key_are_rejected() {
    let (provider, stranger) = (Provider::new(), Provider::new());
    let (_folder, jwks) = open(&provider.jwks());
    let unknown = |kid: &str| JwtError::UnknownKey(Some(kid.to_owned()));
    let algorithm = |name: &str| JwtError::Algorithm(name.to_owned());
    let rows = [
        (json!({"alg": "none"}), algorithm("none")),
        (json!({"alg": "none", "kid": "ed-1"}), algorithm("none")),
        (json!({"alg": "HS256", "kid": "hmac-1"}), algorithm("HS256")),
        (json!({"alg": "RS512", "kid": "rsa-1"}), algorithm("RS512")),
        (json!({"alg": "eddsa", "kid": "ed-1"}), algorithm("eddsa")),
        (json!({"alg": "EdDSA", "kid": "ed-2"}), unknown("ed-2")),
        (json!({"alg": "RS256", "kid": "enc-1"}), unknown("enc-1")),
        (
            json!({"alg": "RS256", "kid": "ed-1"}),
            JwtError::KeyMismatch,
        ),
        (
            json!({"alg": "EdDSA", "kid": "rsa-1"}),
            JwtError::KeyMismatch,
        ),
        (json!({"alg": "RS256", "kid": "rsa-1"}), JwtError::Signature),
        (
            json!({"alg": "EdDSA", "kid": "ed-1", "crit": ["exp"]}),
            JwtError::Malformed("it has extensions that must be understood"),
        ),
    ];
    for (header, error) in rows {
        let text = provider.signed(&header, &claims());
        let checked = jwks.check(&text, &expected(), NOW_S * 1_000);
        assert_eq!(checked, Err(error), "{header}");
    }
    let check = |text: &str| jwks.check(text, &expected(), NOW_S * 1_000).unwrap_err();
    for (alg, kid) in [("EdDSA", "ed-1"), ("ES256", "ec-1")] {
        let header = json!({"alg": alg, "kid": kid});
        let text = stranger.signed(&header, &claims());
        assert_eq!(check(&text), JwtError::Signature, "by another key");
        let own = provider.signed(&header, &claims());
        let (message, signature) = own.rsplit_once('.').unwrap();
        let (head, _) = message.split_once('.').unwrap();
        let other = encoded(with(&json!({"sub": "grace"})).to_string().as_bytes());
        let forged = format!("{head}.{other}.{signature}");
        assert_eq!(check(&forged), JwtError::Signature, "with other claims");
        assert_eq!(
            check(&format!("{message}.")),
            JwtError::Signature,
            "unsigned"
        );
    }
    for text in [
        "",
        "a",
        "a.b",
        "a.b.c",
        "....",
        &"a".repeat(JWT_BYTES_MAX + 1),
    ] {
        assert!(matches!(check(text), JwtError::Malformed(_)));
    }
}

#[test]
fn a_changed_key_file_is_loaded_and_an_invalid_one_is_not() {
    let (old, new) = (Provider::new(), Provider::new());
    let (folder, jwks) = open(&old.jwks());
    let header = json!({"alg": "EdDSA", "kid": "ed-1"});
    let is_taken = |provider: &Provider| {
        let text = provider.signed(&header, &claims());
        jwks.check(&text, &expected(), NOW_S * 1_000).is_ok()
    };
    let path = folder.path().join("jwks.json");
    let mut failed = None;
    fs::write(&path, "half").unwrap();
    jwks.shared.poll(&mut failed);
    assert!(failed.is_some() && is_taken(&old));
    fs::write(&path, format!("{} ", new.jwks())).unwrap();
    jwks.shared.poll(&mut failed);
    assert!(failed.is_none() && is_taken(&new) && !is_taken(&old));
    let empty = folder.path().join("empty.json");
    fs::write(
        &empty,
        json!({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}).to_string(),
    )
    .unwrap();
    let problem = Jwks::open(&empty).unwrap_err().to_string();
    assert!(problem.contains("contains no key for RS256"), "{problem}");
    let missing = Jwks::open(&folder.path().join("none.json"));
    assert!(matches!(missing, Err(JwksError::Read { .. })));
}

#[test]
fn tokens_of_muster_are_not_taken_for_jwts() {
    assert!(is_jwt(RSA_SIGNED));
    for text in ["", "muster:ada:00", "muster:a.b.c:00", "a.b"] {
        assert!(!is_jwt(text), "{text}");
    }
}
