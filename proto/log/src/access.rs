//! Users and join tokens, and commands that change them.

use std::sync::Arc;

use muster_model::access::{JoinGrant, JoinToken, Role, TokenHash, User};
use muster_model::command::AccessCommand;
use muster_model::time::TimeMs;
use muster_proto::field::{MessageTwin, Twin, required, twin_variants};
use v1::access::Kind;

use crate::error::Field;
use crate::v1::{self, access};

twin_variants! {
    kind_to_wire, kind_from_wire: AccessCommand <=> Kind in access {
        AddUser { request: request, author: author, name: name, user: user },
        RemoveUser { request: request, author: author, name: name },
        RotateToken { request: request, author: author, name: name, token: token_hash },
        AddJoinToken { request: request, author: author, id: id, grant: grant },
        RevokeJoinToken { request: request, author: author, id: id },
        UseJoinToken { request: request, id: id, token: token_hash, host: host },
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

/// A user's record in the state.
pub(super) fn record_to_wire(name: &str, user: &User) -> v1::UserRecord {
    v1::UserRecord {
        name: name.to_owned(),
        user: user.to_wire(),
    }
}

/// A user's record in the state.
pub(super) fn record_from_wire(wire: v1::UserRecord) -> Field<(Arc<str>, User)> {
    let user = User::from_wire("user.user", wire.user)?;
    Ok((wire.name.into(), user))
}

/// A join token's record in the state.
pub(super) fn join_token_to_wire(id: &str, token: &JoinToken) -> v1::JoinTokenRecord {
    v1::JoinTokenRecord {
        id: id.to_owned(),
        grant: token.grant.to_wire(),
        author: token.author.clone(),
        created_at_ms: token.created_at.0,
        uses: token.uses,
    }
}

/// A join token's record in the state.
pub(super) fn join_token_from_wire(wire: v1::JoinTokenRecord) -> Field<(Arc<str>, JoinToken)> {
    let token = JoinToken {
        grant: JoinGrant::from_wire("join_token.grant", wire.grant)?,
        author: wire.author,
        created_at: TimeMs(wire.created_at_ms),
        uses: wire.uses,
    };
    Ok((wire.id.into(), token))
}

impl MessageTwin<v1::JoinGrant> for JoinGrant {
    fn to_message(&self) -> v1::JoinGrant {
        v1::JoinGrant {
            token_hash: self.hash.to_wire(),
            ttl_ms: self.ttl_ms,
            uses_max: self.uses_max,
            host_pattern: self.host_pattern.clone(),
        }
    }

    fn from_message(wire: v1::JoinGrant) -> Field<Self> {
        Ok(Self {
            hash: TokenHash::from_wire("token_hash", wire.token_hash)?,
            ttl_ms: wire.ttl_ms,
            uses_max: wire.uses_max,
            host_pattern: wire.host_pattern,
        })
    }
}

impl MessageTwin<v1::UserRights> for User {
    fn to_message(&self) -> v1::UserRights {
        v1::UserRights {
            role: self.role.to_wire(),
            queues: self.queues.iter().cloned().collect(),
            token_hash: self.token.map(|token| token.to_wire()),
        }
    }

    fn from_message(wire: v1::UserRights) -> Field<Self> {
        let token = wire
            .token_hash
            .map(|hash| TokenHash::from_wire("token_hash", hash));
        Ok(Self {
            role: Role::from_wire("role", wire.role)?,
            queues: wire.queues.into_iter().collect(),
            token: token.transpose()?,
        })
    }
}
