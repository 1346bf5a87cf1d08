//! Settings of TLS.

use std::net::IpAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Certificates of one process. Without them its connections are neither encrypted nor authenticated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TlsSettings {
    /// The authority's certificates (PEM): only peers with its certificates are accepted. Files are
    /// reloaded when they change.
    pub ca: Option<PathBuf>,
    /// The certificate of this process (PEM), with any intermediate ones.
    pub certificate: Option<PathBuf>,
    /// The private key of the certificate (PEM).
    pub key: Option<PathBuf>,
    /// Replicas only: the authority's private key (PEM). With it the replica signs certificates of workers
    /// that join by a token, and renews them; anyone who has the file can impersonate any peer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca_key: Option<PathBuf>,
}

impl TlsSettings {
    /// Whether connections are encrypted.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.ca.is_some() || self.certificate.is_some() || self.key.is_some()
    }

    /// Returns the violated rule of a process that presents a certificate: all three options, or none.
    #[must_use]
    pub fn broken_rule(&self) -> Option<(&'static str, &'static str)> {
        if !self.is_on() {
            let alone = "signs certificates of workers, which requires the other options of `tls`";
            return self.ca_key.is_some().then_some(("tls.ca_key", alone));
        }
        let given = [
            ("tls.ca", self.ca.is_some()),
            ("tls.certificate", self.certificate.is_some()),
            ("tls.key", self.key.is_some()),
        ];
        let missing = given.into_iter().find(|(_, is_given)| !is_given);
        missing.map(|(key, _)| {
            (
                key,
                "must be set if another option of `tls` is: `muster cert` makes all three",
            )
        })
    }
}

/// Whether a host, or a `host:port`, can only be this machine.
#[must_use]
pub fn is_loopback(address: &str) -> bool {
    let is_this = |host: &str| {
        let host = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    };
    is_this(address)
        || address
            .rsplit_once(':')
            .is_some_and(|(host, _)| is_this(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_loopback() {
        for address in [
            "127.0.0.1:7400",
            "127.8.9.1",
            "[::1]:7400",
            "::1",
            "localhost:7400",
            "localhost",
        ] {
            assert!(is_loopback(address), "{address}");
        }
        for address in [
            "0.0.0.0:7400",
            "10.0.0.1:7400",
            "[::]:7400",
            "localhost.evil:7400",
            "host",
            "",
        ] {
            assert!(!is_loopback(address), "{address}");
        }
    }

    #[test]
    fn the_missing_file_is_named() {
        let mut settings = TlsSettings::default();
        assert_eq!(settings.broken_rule(), None);
        settings.ca = Some("ca.pem".into());
        assert!(
            settings
                .broken_rule()
                .is_some_and(|(key, _)| key == "tls.certificate")
        );
        settings.certificate = Some("replica.pem".into());
        assert!(
            settings
                .broken_rule()
                .is_some_and(|(key, _)| key == "tls.key")
        );
        settings.key = Some("replica.key".into());
        assert_eq!(settings.broken_rule(), None);
        let alone = TlsSettings {
            ca_key: Some("ca.key".into()),
            ..TlsSettings::default()
        };
        assert!(
            alone
                .broken_rule()
                .is_some_and(|(key, _)| key == "tls.ca_key")
        );
    }
}
