//! Settings of the etcd client.

use std::path::PathBuf;

use muster_tls::TlsSettings;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::keys::Keys;

/// Scheme of an endpoint whose connections are encrypted.
const SECURE: &str = "https://";
/// Scheme of an endpoint with plain connections.
const OPEN: &str = "http://";

/// Settings of the etcd client. Without endpoints etcd is not used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EtcdSettings {
    /// Endpoints of etcd (`host:port`, or `https://host:port` with `etcd.ca`), version 3.4 or newer, for
    /// discovery of replicas. Without endpoints etcd is not used.
    #[schemars(extend("x-alias" = "etcd", "x-variable" = "MUSTER_ETCD"))]
    pub endpoints: Vec<String>,
    /// Prefix of the cluster's keys; `/muster/<cluster id>/` by default.
    #[schemars(extend("x-variable" = "MUSTER_ETCD_PREFIX"))]
    pub prefix: Option<String>,
    /// User name of this process in etcd; requires `etcd.password_file`.
    #[schemars(extend("x-variable" = "MUSTER_ETCD_USER"))]
    pub user: Option<String>,
    /// File with the user's password; reread for every login.
    #[schemars(extend("x-variable" = "MUSTER_ETCD_PASSWORD_FILE"))]
    pub password_file: Option<PathBuf>,
    /// Certificate authorities of etcd (PEM).
    #[schemars(extend("x-variable" = "MUSTER_ETCD_CACERT"))]
    pub ca: Option<PathBuf>,
    /// Client certificate for etcd, if it requires one (PEM).
    #[schemars(extend("x-variable" = "MUSTER_ETCD_CERT"))]
    pub certificate: Option<PathBuf>,
    /// The private key of the certificate (PEM).
    #[schemars(extend("x-variable" = "MUSTER_ETCD_KEY"))]
    pub key: Option<PathBuf>,
}

/// A setting that violates a rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("setting `{key}`: {rule}")]
pub struct InvalidSetting {
    /// Key of the setting: `etcd.endpoints`.
    pub key: String,
    /// The requirement.
    pub rule: String,
}

impl EtcdSettings {
    /// Settings with these endpoints only.
    pub fn new<Endpoint: Into<String>>(endpoints: impl IntoIterator<Item = Endpoint>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            ..Self::default()
        }
    }

    /// Whether etcd is used.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.endpoints.is_empty()
    }

    /// The keys of a cluster.
    #[must_use]
    pub fn keys(&self, cluster_id: &str) -> Keys {
        Keys::new(self.prefix.as_deref(), cluster_id)
    }

    /// Checks everything that can be checked without a connection.
    ///
    /// # Errors
    /// The first violated rule.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        for endpoint in &self.endpoints {
            let host_and_port = self.address(endpoint)?;
            require(is_host_and_port(host_and_port), "endpoints", || {
                format!(
                    "`{endpoint}` is not `host:port`, `http://host:port` or `https://host:port`"
                )
            })?;
        }
        let begins = |prefix: &String| prefix.starts_with('/') && prefix.len() > 1;
        require(self.prefix.as_ref().is_none_or(begins), "prefix", || {
            "must begin with `/` and be longer than that".to_owned()
        })?;
        require(
            self.user.is_some() == self.password_file.is_some(),
            "password_file",
            || "must be set if, and only if, `etcd.user` is".to_owned(),
        )?;
        require(
            self.certificate.is_some() == self.key.is_some(),
            "key",
            || "must be set if, and only if, `etcd.certificate` is".to_owned(),
        )?;
        require(
            self.certificate.is_none() || self.ca.is_some(),
            "ca",
            || "must be set if `etcd.certificate` is".to_owned(),
        )
    }

    /// Returns an endpoint without its scheme, which must match the certificates.
    pub(crate) fn address<'a>(&self, endpoint: &'a str) -> Result<&'a str, InvalidSetting> {
        if let Some(address) = endpoint.strip_prefix(SECURE) {
            require(self.ca.is_some(), "ca", || {
                format!("must be set to authenticate {endpoint}")
            })?;
            return Ok(address);
        }
        let open = endpoint.strip_prefix(OPEN);
        require(open.is_none() || self.ca.is_none(), "endpoints", || {
            format!("{endpoint} is not encrypted although `etcd.ca` is set: use `https://`")
        })?;
        Ok(open.unwrap_or(endpoint))
    }

    pub(crate) fn tls(&self) -> TlsSettings {
        TlsSettings {
            ca: self.ca.clone(),
            certificate: self.certificate.clone(),
            key: self.key.clone(),
            ca_key: None,
        }
    }
}

fn require(holds: bool, key: &str, rule: impl FnOnce() -> String) -> Result<(), InvalidSetting> {
    if holds {
        return Ok(());
    }
    Err(InvalidSetting {
        key: format!("etcd.{key}"),
        rule: rule(),
    })
}

fn is_host_and_port(address: &str) -> bool {
    address.rsplit_once(':').is_some_and(|(host, port)| {
        let is_host = !host.is_empty() && !host.contains(['/', '@', ' ']);
        is_host && port.parse::<u16>().is_ok_and(|port| port != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(edit: impl FnOnce(&mut EtcdSettings)) -> Option<String> {
        let mut settings = EtcdSettings::new(["a:2379"]);
        edit(&mut settings);
        settings.validate().err().map(|broken| broken.key)
    }

    #[test]
    fn an_invalid_setting_is_named() {
        assert_eq!(broken(|_| {}), None);
        assert_eq!(
            broken(|it| it.endpoints = vec!["http://a:1".to_owned()]),
            None
        );
        for wrong in ["a", "a:0", "https://a:1", "ftp://a:1", "a:1/x"] {
            let key = broken(|it| it.endpoints = vec![wrong.to_owned()]);
            assert!(key.is_some(), "{wrong}");
        }
        let key = broken(|it| it.prefix = Some("muster".to_owned()));
        assert_eq!(key.as_deref(), Some("etcd.prefix"));
        let key = broken(|it| it.user = Some("muster".to_owned()));
        assert_eq!(key.as_deref(), Some("etcd.password_file"));
        let key = broken(|it| it.certificate = Some("a.pem".into()));
        assert_eq!(key.as_deref(), Some("etcd.key"));
        let key = broken(|it| {
            it.certificate = Some("a.pem".into());
            it.key = Some("a.key".into());
        });
        assert_eq!(key.as_deref(), Some("etcd.ca"));
        let secure = |it: &mut EtcdSettings| {
            it.ca = Some("ca.pem".into());
            it.endpoints = vec!["https://a:1".to_owned(), "b:1".to_owned()];
        };
        assert_eq!(broken(secure), None);
    }
}
