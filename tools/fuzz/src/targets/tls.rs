//! Credentials: tokens of users, joining workers and identity providers, with the providers' keys; names in
//! certificates and in certificate requests; and the files of a process (authority, certificate, key), one of
//! which has arbitrary content.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use crate::{SMALL, assert_same, bounded, choice, or_panic};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use muster_tls::jwt::{Jwks, RequiredClaims};
use muster_tls::{JoinToken, PeerRole, SigningRequest, Tls, TlsSettings, Token, issue, role_of};
use rustls_pki_types::CertificateDer;
use tempfile::TempDir;

/// A time at which the token of the seeds is valid, in milliseconds since the Unix epoch.
const NOW_MS: u64 = 1_800_000_000_000;

/// Valid files, and one that is rewritten for every input.
struct Files {
    folder: TempDir,
    good: [PathBuf; 3],
}

static FILES: LazyLock<Files> = LazyLock::new(|| {
    let folder = or_panic(tempfile::tempdir(), "a temporary folder");
    let authority = or_panic(issue::authority(folder.path(), "c1"), "an authority");
    let names = ["localhost".to_owned()];
    let issued = issue::certificate(folder.path(), "r", &PeerRole::Replica, &names, 1);
    let issued = or_panic(issued, "a certificate");
    Files {
        good: [authority.certificate, issued.certificate, issued.key],
        folder,
    }
});

/// Reads the files, one of which has arbitrary content.
fn check_file(position: usize, content: &[u8]) {
    let Files { folder, good } = &*FILES;
    let anything = folder.path().join("anything.pem");
    or_panic(fs::write(&anything, content), "a temporary folder");
    let mut files = good.clone();
    files[position % good.len()] = anything;
    let [ca, certificate, key] = files.map(Some);
    let settings = TlsSettings {
        ca,
        certificate,
        key,
        ca_key: None,
    };
    let read = Tls::load_as(&settings, Some(PeerRole::Replica));
    drop(read.map_err(|error| error.to_string()));
}

/// The same content as PEM, so that the fuzzer need not find base64.
fn pem(position: usize, content: &[u8]) -> Vec<u8> {
    let kind = ["CERTIFICATE", "CERTIFICATE", "PRIVATE KEY"][position % 3];
    let body = STANDARD.encode(content);
    format!("-----BEGIN {kind}-----\n{body}\n-----END {kind}-----\n").into_bytes()
}

fn check_token(text: &str) {
    let token = Token::new(text);
    assert_eq!(token.text(), text.trim());
    assert_eq!(token.hash(), Token::new(token.text()).hash());
    assert_eq!(format!("{token:?}"), "Token(..)");
    if let Some(name) = token.name() {
        assert!(!name.is_empty() && !name.contains(':'));
    }
}

fn check_join_token(text: &str) {
    let token = JoinToken::new(text);
    assert_eq!(token.hash(), JoinToken::new(token.text()).hash());
    if token.authorities().is_some() {
        assert!(token.id().is_some());
    }
}

fn expected() -> RequiredClaims {
    let [issuer, audience, user_claim, groups_claim] =
        ["https://idp.example", "muster", "sub", "groups"].map(str::to_owned);
    RequiredClaims {
        issuer,
        audience,
        user_claim,
        groups_claim,
    }
}

/// Keys of a provider, and a token checked with them; the token follows a zero byte, if there is one.
fn check_provider(content: &[u8]) {
    let mut parts = content.splitn(2, |byte| *byte == 0);
    let (keys, token) = (parts.next().unwrap_or_default(), parts.next());
    let file = FILES.folder.path().join("keys.json");
    or_panic(fs::write(&file, keys), "a temporary folder");
    let Ok(keys) = Jwks::open(&file) else {
        return;
    };
    let text = String::from_utf8_lossy(token.unwrap_or_default());
    drop(
        keys.check(&text, &expected(), NOW_MS)
            .map_err(|error| error.to_string()),
    );
}

fn check_role(text: &str) {
    if let Some(role) = PeerRole::parse(text) {
        assert_eq!(role.uri(), text);
        assert_same(&PeerRole::parse(&role.uri()), &Some(role));
    }
}

/// Checks one input.
pub(crate) fn run(data: &[u8]) {
    let Some((kind, content)) = choice(data) else {
        return;
    };
    let files = &*FILES;
    assert!(files.folder.path().is_dir());
    bounded(data, SMALL, || match kind {
        0 => check_token(&String::from_utf8_lossy(content)),
        1 => check_role(&String::from_utf8_lossy(content)),
        2 => drop(role_of(&CertificateDer::from(content))),
        3..=5 => check_file(kind, content),
        9 => check_join_token(&String::from_utf8_lossy(content)),
        10 => drop(
            SigningRequest::parse(&String::from_utf8_lossy(content)).map_err(|it| it.to_string()),
        ),
        11 => check_provider(content),
        _ => check_file(kind, &pem(kind, content)),
    });
}
