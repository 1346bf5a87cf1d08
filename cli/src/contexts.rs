//! Contexts file: named clusters, and the default one.
//!
//! ```yaml
//! current: lab
//! contexts:
//!   lab:
//!     addresses: ["lab1:7400", "lab2:7400", "lab3:7400"]
//!     ca: lab/ca.pem
//!     token_file: lab/token
//! ```

use std::collections::BTreeMap;
use std::env;
use std::io;
use std::path::{Path, PathBuf};

use muster_client::{TlsSettings, Token};
use serde::Deserialize;

use crate::failure::Failure;
use muster_job_file::strict_yaml::parse_one;

/// The file as a whole.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// The default context.
    #[serde(default)]
    current: Option<String>,
    /// Clusters by name.
    #[serde(default)]
    contexts: BTreeMap<String, Context>,
}

/// One cluster.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Context {
    /// Its replicas, as `host:port`.
    addresses: Vec<String>,
    /// The cluster's authority; like the other files relative to the folder of the contexts file.
    ca: Option<PathBuf>,
    /// The user's certificate, with its key.
    certificate: Option<PathBuf>,
    /// See `certificate`.
    key: Option<PathBuf>,
    /// The user's token.
    token: Option<String>,
    /// A file with the token.
    token_file: Option<PathBuf>,
}

/// A cluster and a user, as far as one source gives them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    /// Its replicas.
    pub(crate) addresses: Option<Vec<String>>,
    /// The trusted authority, and the user's certificate.
    pub(crate) tls: TlsSettings,
    /// The user's token.
    pub(crate) token: Option<Token>,
}

impl Cluster {
    /// Fills missing values from another source.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            addresses: self.addresses.or(other.addresses),
            tls: TlsSettings {
                ca: self.tls.ca.or(other.tls.ca),
                certificate: self.tls.certificate.or(other.tls.certificate),
                key: self.tls.key.or(other.tls.key),
                ca_key: None,
            },
            token: self.token.or(other.token),
        }
    }
}

/// Reads a token from a file.
pub(crate) fn read_token(path: &Path) -> Result<Token, Failure> {
    let read = std::fs::read_to_string(path);
    let failed = |error| {
        Failure::new(format!(
            "cannot read the token from {}: {error}",
            path.display()
        ))
    };
    read.map(|text| Token::new(&text)).map_err(failed)
}

/// Path of the file: `$XDG_CONFIG_HOME/muster/contexts.yaml`, `~/.config/muster/contexts.yaml`.
fn path() -> Option<PathBuf> {
    let given = env::var_os("XDG_CONFIG_HOME").filter(|folder| !folder.is_empty());
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    let folder = given.map(PathBuf::from).or_else(home)?;
    Some(folder.join("muster").join("contexts.yaml"))
}

/// The cluster of a context: the named one, else the file's current one; empty without either.
pub(crate) fn cluster(named: Option<&str>) -> Result<Cluster, Failure> {
    let Some(path) = path() else {
        return Ok(Cluster::default());
    };
    let file = path.display().to_string();
    let contexts = match std::fs::read_to_string(&path) {
        Ok(text) if text.trim().is_empty() => Contexts::default(),
        Ok(text) => parse_one(&file, &text).map_err(|error| Failure::usage(error.to_string()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Contexts::default(),
        Err(error) => return Err(Failure::new(format!("cannot read {file}: {error}"))),
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    match contexts.find(named, &file)? {
        Some(context) => context.cluster(folder),
        None => Ok(Cluster::default()),
    }
}

impl Context {
    fn cluster(&self, folder: &Path) -> Result<Cluster, Failure> {
        let file = |path: &Option<PathBuf>| path.as_ref().map(|path| folder.join(path));
        let token = match (&self.token, file(&self.token_file)) {
            (Some(text), _) => Some(Token::new(text)),
            (None, Some(path)) => Some(read_token(&path)?),
            (None, None) => None,
        };
        Ok(Cluster {
            addresses: Some(self.addresses.clone()),
            tls: TlsSettings {
                ca: file(&self.ca),
                certificate: file(&self.certificate),
                key: file(&self.key),
                ca_key: None,
            },
            token,
        })
    }
}

impl Contexts {
    fn find(&self, named: Option<&str>, file: &str) -> Result<Option<&Context>, Failure> {
        let Some(name) = named.or(self.current.as_deref()) else {
            return Ok(None);
        };
        let context = self.contexts.get(name).ok_or_else(|| {
            let known: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            let known = if known.is_empty() {
                "it has none".to_owned()
            } else {
                format!("it has {}", known.join(", "))
            };
            Failure::usage(format!("no context `{name}` in {file}; {known}"))
        })?;
        Ok(Some(context))
    }
}
