//! Users, join tokens and certificates.

use muster_proto::v1;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::instant::Instant;

string_enum! {
    /// Role of a user.
    pub enum UserRole from v1::UserRole {
        Viewer "viewer",
        User "user",
        Operator "operator",
        Admin "admin",
    }
}

documents! {
    /// A user with its rights, without its token.
    pub struct User from v1::UserInfo {
        name: String,
        role: UserRole,
        /// Queues to which it is limited.
        queues: Vec<String>,
        has_token: bool,
    }

    /// A join token of workers, without its secret.
    pub struct JoinToken from v1::JoinTokenInfo {
        id: String,
        author: String,
        created_at: Instant = created_at_ms,
        expires_at: Instant = expires_at_ms,
        uses: u32,
        uses_max: u32,
        host_pattern: Option<String>,
        spent: bool = is_spent,
    }
}

/// A new token of a user: the only time that it is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UserToken {
    pub name: String,
    pub token: String,
    pub revision: u64,
}

/// An object with a name that was removed or changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChangedName {
    pub name: String,
    pub revision: u64,
}

/// A new join token: the only time that it is shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NewJoinToken {
    pub id: String,
    pub token: String,
    pub revision: u64,
}

/// A join token that was revoked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RevokedJoinToken {
    pub id: String,
    pub revision: u64,
}

/// The files of a new certificate, as settings have them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Certificate {
    pub tls: CertificateFiles,
}

/// Files of a certificate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CertificateFiles {
    /// Null for the authority itself.
    pub ca: Option<String>,
    pub certificate: String,
    pub key: String,
}
