//! Commands about users, and users.

use std::sync::Arc;

use bytes::Bytes;
use muster_core::access::{Role, TokenHash, User};
use muster_core::command::AccessCommand;
use v1::access::Kind;

use super::error::Field;
use super::v1;
use super::v1::access;
use crate::convert::{InvalidField, Twin, required, twin_variants};

twin_variants! {
    kind_to_wire, kind_from_wire: AccessCommand <=> Kind in access {
        AddUser { request: request, author: author, name: name, user: user },
        RemoveUser { request: request, author: author, name: name },
        RotateToken { request: request, author: author, name: name, token: token_hash },
    }
}

pub(super) fn to_wire(command: &AccessCommand) -> v1::Access {
    v1::Access {
        kind: Some(kind_to_wire(command)),
    }
}

pub(super) fn from_wire(wire: v1::Access) -> Field<AccessCommand> {
    kind_from_wire(required("access.kind", wire.kind)?)
}

/// A user as a state keeps it.
pub(super) fn record_to_wire(name: &str, user: &User) -> v1::UserRecord {
    v1::UserRecord {
        name: name.to_owned(),
        user: user.to_wire(),
    }
}

/// A user as a state keeps it.
pub(super) fn record_from_wire(wire: v1::UserRecord) -> Field<(Arc<str>, User)> {
    let user = User::from_wire("user.user", wire.user)?;
    Ok((wire.name.into(), user))
}

impl Twin<Option<v1::UserRights>> for User {
    fn to_wire(&self) -> Option<v1::UserRights> {
        Some(v1::UserRights {
            role: self.role.name().to_owned(),
            queues: self.queues.iter().cloned().collect(),
            token_hash: self.token.map(|token| token.to_wire()),
        })
    }

    fn from_wire(field: &str, wire: Option<v1::UserRights>) -> Result<Self, InvalidField> {
        let wire = required(field, wire)?;
        let role = Role::named(&wire.role);
        let token = wire
            .token_hash
            .map(|hash| TokenHash::from_wire(field, hash));
        Ok(Self {
            role: role.ok_or_else(|| {
                InvalidField::new(field, "has a role that this build does not know")
            })?,
            queues: wire.queues.into_iter().collect(),
            token: token.transpose()?,
        })
    }
}

impl Twin<Bytes> for TokenHash {
    fn to_wire(&self) -> Bytes {
        Bytes::copy_from_slice(&self.0)
    }

    fn from_wire(field: &str, wire: Bytes) -> Result<Self, InvalidField> {
        let hash = wire.as_ref().try_into().map(TokenHash);
        hash.map_err(|_| InvalidField::new(field, "must have a token's hash of 32 bytes"))
    }
}
