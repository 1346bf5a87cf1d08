//! The contexts file: named clusters, and which one is used where nothing else is said.
//!
//! ```yaml
//! current: lab
//! contexts:
//!   lab: {addresses: ["lab1:7400", "lab2:7400", "lab3:7400"]}
//! ```

use std::collections::BTreeMap;
use std::env;
use std::io;
use std::path::PathBuf;

use serde::Deserialize;

use crate::failure::Failure;
use crate::strict_yaml::parse_one;

/// The file as a whole.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Contexts {
    /// The context that is used where none is named.
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
}

/// Where the file lies: `$XDG_CONFIG_HOME/muster/contexts.yaml`, `~/.config/muster/contexts.yaml`.
fn path() -> Option<PathBuf> {
    let given = env::var_os("XDG_CONFIG_HOME").filter(|folder| !folder.is_empty());
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".config"));
    let folder = given.map(PathBuf::from).or_else(home)?;
    Some(folder.join("muster").join("contexts.yaml"))
}

/// The addresses of a context: the named one, else the file's current one; none if there is neither.
pub(crate) fn addresses(named: Option<&str>) -> Result<Option<Vec<String>>, Failure> {
    let Some(path) = path() else { return Ok(None) };
    let file = path.display().to_string();
    let contexts = match std::fs::read_to_string(&path) {
        Ok(text) if text.trim().is_empty() => Contexts::default(),
        Ok(text) => parse_one(&file, &text).map_err(|error| Failure::usage(error.to_string()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Contexts::default(),
        Err(error) => return Err(Failure::new(format!("cannot read {file}: {error}"))),
    };
    contexts.addresses(named, &file)
}

impl Contexts {
    fn addresses(&self, named: Option<&str>, file: &str) -> Result<Option<Vec<String>>, Failure> {
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
            Failure::usage(format!("there is no context `{name}` in {file}; {known}"))
        })?;
        Ok(Some(context.addresses.clone()))
    }
}
