//! Identity in a certificate: a URI among its subject's alternative names.

use std::fmt;

use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

/// Scheme of these URIs.
const SCHEME: &str = "muster://";
/// Path of a replica's URI.
const REPLICA: &str = "replica";

/// Role of a certificate's holder.
///
/// A certificate contains it as a URI among its alternative names: `muster://replica`,
/// `muster://worker/NAME` with the host's name, `muster://user/NAME`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PeerRole {
    /// A scheduler replica: may use the replication protocol, and is fully trusted.
    Replica,
    /// The worker of the host of this name.
    Worker(String),
    /// A user.
    User(String),
}

impl PeerRole {
    /// The URI of the role in a certificate.
    #[must_use]
    pub fn uri(&self) -> String {
        match self {
            Self::Replica => format!("{SCHEME}{REPLICA}"),
            Self::Worker(name) => format!("{SCHEME}worker/{name}"),
            Self::User(name) => format!("{SCHEME}user/{name}"),
        }
    }

    /// Parses a URI; none if it is not one of ours.
    #[must_use]
    pub fn parse(uri: &str) -> Option<Self> {
        let role = uri.strip_prefix(SCHEME)?;
        if role == REPLICA {
            return Some(Self::Replica);
        }
        let (kind, name) = role.split_once('/')?;
        if !is_name(name) {
            return None;
        }
        match kind {
            "worker" => Some(Self::Worker(name.to_owned())),
            "user" => Some(Self::User(name.to_owned())),
            _ => None,
        }
    }
}

impl fmt::Display for PeerRole {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replica => formatter.write_str("a replica"),
            Self::Worker(name) => write!(formatter, "worker `{name}`"),
            Self::User(name) => write!(formatter, "user `{name}`"),
        }
    }
}

/// Whether a name is valid in a URI without escaping.
pub(crate) fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._@".contains(&byte);
    !name.is_empty() && name.bytes().all(is_plain)
}

/// Role in a certificate; none if it contains no role, or more than one.
#[must_use]
pub fn role_of(certificate: &CertificateDer<'_>) -> Option<PeerRole> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let names = parsed.subject_alternative_name().ok()??;
    let mut roles = names
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::URI(uri) => PeerRole::parse(uri),
            _ => None,
        });
    let role = roles.next()?;
    roles.next().is_none().then_some(role)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uri_names_one_role() {
        let roles = [
            (PeerRole::Replica, "muster://replica"),
            (
                PeerRole::Worker("gpu-1.lab".to_owned()),
                "muster://worker/gpu-1.lab",
            ),
            (
                PeerRole::User("ada@lab".to_owned()),
                "muster://user/ada@lab",
            ),
        ];
        for (role, uri) in roles {
            assert_eq!(role.uri(), uri);
            assert_eq!(PeerRole::parse(uri), Some(role));
        }
        let strange = [
            "muster://replica/1",
            "muster://user/",
            "muster://worker/a/b",
            "muster://admin/ada",
            "https://replica",
            "muster://user/a b",
            "",
        ];
        for uri in strange {
            assert_eq!(PeerRole::parse(uri), None, "{uri}");
        }
    }
}
