//! Registry logins from the file in which podman and docker store them.
//! The file is read when an image is pulled, and its contents go to the engine alone. Messages about it never
//! quote it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use serde::Deserialize;
use serde_json::json;

use crate::limits::REGISTRY_AUTH_BYTES_MAX;

/// Registry of images whose name has none.
const DEFAULT_REGISTRY: &str = "docker.io";
/// Other names of that registry in files.
const DEFAULT_ALIASES: [&str; 2] = ["index.docker.io", "registry-1.docker.io"];

/// A login in the encoding of the header `X-Registry-Auth`.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Login(String);

impl Login {
    /// The header's value.
    pub(super) fn header(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Login(..)")
    }
}

/// Why a login is unavailable.
#[derive(Debug, thiserror::Error)]
#[error("the login at the registry `{registry}` cannot be read from {}: {why}", file.display())]
pub(super) struct LoginError {
    file: PathBuf,
    registry: String,
    why: String,
}

/// The relevant part of the file.
#[derive(Deserialize)]
struct AuthFile {
    #[serde(default)]
    auths: BTreeMap<String, Entry>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Entry {
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
    identitytoken: Option<String>,
}

/// The login for an image; `None` if the file has none for its registry.
///
/// # Errors
/// What is wrong with the file, without quoting its contents.
pub(super) fn login(file: &Path, image: &str) -> Result<Option<Login>, LoginError> {
    let repository = repository(image);
    let failed = |why: String| LoginError {
        file: file.to_owned(),
        registry: registry(&repository).to_owned(),
        why,
    };
    let bytes = read(file).map_err(failed)?;
    let parsed: AuthFile = serde_json::from_slice(&bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        failed(format!(
            "line {line}, column {column}: not in the format of `podman login` or `docker login`"
        ))
    })?;
    let Some(entry) = entry(&parsed.auths, &repository) else {
        return Ok(None);
    };
    let fields = login_fields(entry).map_err(|why| failed(why.to_owned()))?;
    Ok(Some(Login(URL_SAFE.encode(fields.to_string()))))
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let opened = File::open(file).map_err(|error| error.to_string())?;
    opened
        .take(REGISTRY_AUTH_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| error.to_string())?;
    if bytes.len() as u64 > REGISTRY_AUTH_BYTES_MAX {
        return Err(format!(
            "larger than the limit of {REGISTRY_AUTH_BYTES_MAX} bytes (REGISTRY_AUTH_BYTES_MAX)"
        ));
    }
    Ok(bytes)
}

/// Registry and path of an image, without tag and digest: `docker.io/library/python`.
fn repository(image: &str) -> String {
    let name = image.split('@').next().unwrap_or(image);
    let (folders, last) = name.rsplit_once('/').unwrap_or(("", name));
    let last = last.split(':').next().unwrap_or(last);
    let first = folders.split('/').next().unwrap_or_default();
    match first {
        "" => format!("{DEFAULT_REGISTRY}/library/{last}"),
        host if host == "localhost" || host.contains(['.', ':']) => {
            let rest = &folders[host.len()..];
            format!("{}{rest}/{last}", known_as(host))
        }
        _ => format!("{DEFAULT_REGISTRY}/{folders}/{last}"),
    }
}

fn registry(repository: &str) -> &str {
    repository.split('/').next().unwrap_or(repository)
}

fn known_as(host: &str) -> &str {
    match DEFAULT_ALIASES.contains(&host) {
        true => DEFAULT_REGISTRY,
        false => host,
    }
}

/// The most specific entry for a repository: podman has logins for parts of a registry.
fn entry<'a>(auths: &'a BTreeMap<String, Entry>, repository: &str) -> Option<&'a Entry> {
    let is_for = |place: &str| {
        let rest = repository.strip_prefix(place);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let places = auths.iter().map(|(key, entry)| (place(key), entry));
    let known = places.filter(|(place, _)| is_for(place));
    known
        .max_by_key(|(place, _)| place.len())
        .map(|(_, entry)| entry)
}

/// The registry or repository of a key in the file: docker writes URLs (`https://index.docker.io/v1/`), of
/// which only the host counts.
fn place(key: &str) -> String {
    let address = key
        .strip_prefix("https://")
        .or_else(|| key.strip_prefix("http://"));
    let place = match address {
        Some(address) => registry(address),
        None => key.trim_end_matches('/'),
    };
    let host = registry(place);
    format!("{}{}", known_as(host), &place[host.len()..])
}

/// The login in the field names of the engines' API.
fn login_fields(entry: &Entry) -> Result<serde_json::Value, &'static str> {
    let given = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    if let Some(token) = given(&entry.identitytoken) {
        return Ok(json!({"identitytoken": token}));
    }
    if let (Some(username), Some(password)) = (given(&entry.username), given(&entry.password)) {
        return Ok(json!({"username": username, "password": password}));
    }
    let auth = given(&entry.auth)
        .ok_or("no login for the registry in the file: credential helpers are not supported")?;
    let malformed = "its `auth` is not the base64 of `user:password`";
    let bytes = STANDARD.decode(auth.trim()).map_err(|_| malformed)?;
    let text = String::from_utf8(bytes).map_err(|_| malformed)?;
    match text.split_once(':') {
        Some((username, password)) if !username.is_empty() => {
            let password = password.trim_matches('\0');
            Ok(json!({"username": username, "password": password}))
        }
        _ => Err(malformed),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a failed test should panic")]
mod tests {
    use super::*;

    /// The login in a file's text for an image.
    fn found(text: &str, image: &str) -> Result<Option<serde_json::Value>, String> {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("auth.json");
        std::fs::write(&file, text).unwrap();
        let login = login(&file, image).map_err(|error| error.to_string())?;
        Ok(login.map(|login| {
            assert_eq!(format!("{login:?}"), "Login(..)");
            serde_json::from_slice(&URL_SAFE.decode(login.header()).unwrap()).unwrap()
        }))
    }

    fn file(entries: &[(&str, &str)]) -> String {
        let entries = entries.iter().map(|(key, login)| {
            let auth = STANDARD.encode(login);
            ((*key).to_owned(), json!({ "auth": auth }))
        });
        json!({"auths": entries.collect::<serde_json::Map<_, _>>()}).to_string()
    }

    fn user(name: &str) -> Result<Option<serde_json::Value>, String> {
        Ok(Some(json!({"username": name, "password": "p:w"})))
    }

    #[test]
    fn a_login_is_found_by_registry_and_repository_prefix() {
        let text = file(&[
            ("https://index.docker.io/v1/", "hub:p:w"),
            ("r.example.com:5000", "all:p:w"),
            ("r.example.com:5000/team/", "team:p:w"),
            ("https://other.example.com", "other:p:w"),
        ]);
        for (image, name) in [
            ("python", "hub"),
            ("team/train:1", "hub"),
            ("docker.io/library/python:3", "hub"),
            ("index.docker.io/a/b", "hub"),
            ("r.example.com:5000/train", "all"),
            ("r.example.com:5000/teams/train", "all"),
            ("r.example.com:5000/team/train:2@sha256:00", "team"),
            ("other.example.com/a/b/c", "other"),
        ] {
            assert_eq!(found(&text, image), user(name), "{image}");
        }
        for image in ["r.example.com/train", "localhost/train", "quay.io/a/b"] {
            assert_eq!(found(&text, image), Ok(None), "{image}");
        }
        assert_eq!(
            found(&file(&[("docker.io", "hub:p:w")]), "a/b"),
            user("hub")
        );
        assert_eq!(found("{}", "a/b"), Ok(None));
    }

    #[test]
    fn tokens_and_plain_passwords_are_logins_too() {
        let text = r#"{"auths": {"a.io": {"auth": "MDA6", "identitytoken": "secret"},
            "b.io": {"username": "u", "password": "secret"}}}"#;
        let token = json!({"identitytoken": "secret"});
        assert_eq!(found(text, "a.io/x"), Ok(Some(token)));
        let plain = json!({"username": "u", "password": "secret"});
        assert_eq!(found(text, "b.io/x"), Ok(Some(plain)));
    }

    #[test]
    fn login_errors_name_file_and_registry_without_secrets() {
        for (text, message) in [
            (r#"{"auths": "secret"}"#, "line 1, column 18"),
            (
                r#"{"auths": {"r.io": {"auth": "secret!"}}}"#,
                "`auth` is not the base64",
            ),
            (
                r#"{"auths": {"r.io": {"auth": "c2VjcmV0"}}}"#,
                "`auth` is not the base64",
            ),
            (
                r#"{"auths": {"r.io": {}}, "credsStore": "secret"}"#,
                "credential helper",
            ),
        ] {
            let error = found(text, "r.io/a").unwrap_err();
            assert!(error.contains(message), "{error}");
            assert!(
                error.contains("auth.json") && error.contains("`r.io`"),
                "{error}"
            );
            assert!(!error.contains("secret"), "{error}");
        }
        let error = login(Path::new("/nonexistent/auth.json"), "a").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the login at the registry `docker.io` cannot be read from /nonexistent/auth.json: No such file or \
             directory \
             (os error 2)"
        );
    }
}
