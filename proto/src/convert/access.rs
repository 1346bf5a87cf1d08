//! Users and join tokens in the client interface.

use muster_model::access::{JoinGrant, Role, TokenHash, User};
use muster_model::command::{AccessCommand, Command};
use muster_model::event::AccessChange;
use muster_model::rejection::Rejection;

use crate::convert::request_key::request_key;
use crate::field::{InvalidField, Twin, required, twin_variants};
use crate::v1;
use crate::v1::access_changed::{self, Kind as ChangeKind};

twin_variants! {
    kind_to_wire, kind_from_wire: AccessChange <=> ChangeKind in access_changed {
        UserAdded { name: name, role: role, queues: queues, author: author },
        UserRemoved { name: name, author: author },
        UserTokenRotated { name: name, author: author },
        JoinTokenAdded {
            id: id, expires_at: expires_at_ms, uses_max: uses_max, host_pattern: host_pattern, author: author,
        },
        JoinTokenRevoked { id: id, author: author },
        WorkerJoined { host: host, token: join_token_id, uses_left: uses_left },
    }
}

/// Converts the access change of an event.
pub(super) fn change_to_wire(change: &AccessChange) -> v1::AccessChanged {
    v1::AccessChanged {
        kind: Some(kind_to_wire(change)),
    }
}

/// Converts back from the wire.
pub(super) fn change_from_wire(wire: v1::AccessChanged) -> Result<AccessChange, InvalidField> {
    kind_from_wire(required("access_changed.kind", wire.kind)?)
}

impl Twin<String> for Role {
    fn to_wire(&self) -> String {
        self.name().to_owned()
    }

    fn from_wire(field: &str, wire: String) -> Result<Self, InvalidField> {
        let unknown = || InvalidField::new(field, "is a role that this build does not know");
        Self::named(&wire).ok_or_else(unknown)
    }
}

impl From<Role> for v1::UserRole {
    fn from(role: Role) -> Self {
        match role {
            Role::Viewer => Self::Viewer,
            Role::User => Self::User,
            Role::Operator => Self::Operator,
            Role::Admin => Self::Admin,
        }
    }
}

/// Role of a wire value; none if unspecified.
#[must_use]
pub fn role_from_wire(role: v1::UserRole) -> Option<Role> {
    match role {
        v1::UserRole::Unspecified => None,
        v1::UserRole::Viewer => Some(Role::Viewer),
        v1::UserRole::User => Some(Role::User),
        v1::UserRole::Operator => Some(Role::Operator),
        v1::UserRole::Admin => Some(Role::Admin),
    }
}

/// Converts a request to the command that adds a user.
///
/// # Errors
/// `InvalidRequest` for an invalid request id, a missing role, or a hash of wrong length.
pub fn add_user_command(request: v1::AddUserRequest) -> Result<Command, Rejection> {
    let key = request_key("add_user", &request.request_id, &request)?;
    let role = role_from_wire(request.role());
    let role =
        role.ok_or_else(|| InvalidField::new("role", "must be viewer, user, operator or admin"))?;
    let token = request
        .token_hash
        .map(|hash| TokenHash::from_wire("token_hash", hash));
    Ok(Command::Access(AccessCommand::AddUser {
        request: key,
        author: request.author,
        name: request.name,
        user: User {
            role,
            queues: request.queues.into_iter().collect(),
            token: token.transpose()?,
        },
    }))
}

/// Converts a request to the command that removes a user.
///
/// # Errors
/// `InvalidRequest` for an invalid request id.
pub fn remove_user_command(request: v1::RemoveUserRequest) -> Result<Command, Rejection> {
    Ok(Command::Access(AccessCommand::RemoveUser {
        request: request_key("remove_user", &request.request_id, &request)?,
        author: request.author,
        name: request.name,
    }))
}

/// Converts a request to the command that replaces a user's token.
///
/// # Errors
/// `InvalidRequest` for an invalid request id, or a hash of wrong length.
pub fn rotate_token_command(request: v1::RotateUserTokenRequest) -> Result<Command, Rejection> {
    Ok(Command::Access(AccessCommand::RotateToken {
        request: request_key("rotate_user_token", &request.request_id, &request)?,
        author: request.author,
        name: request.name,
        token: TokenHash::from_wire("token_hash", request.token_hash)?,
    }))
}

/// Converts a request to the command that creates a join token.
///
/// # Errors
/// `InvalidRequest` for an invalid request id, or a hash of wrong length.
pub fn add_join_token_command(request: v1::AddJoinTokenRequest) -> Result<Command, Rejection> {
    Ok(Command::Access(AccessCommand::AddJoinToken {
        request: request_key("add_join_token", &request.request_id, &request)?,
        author: request.author,
        id: request.id,
        grant: JoinGrant {
            hash: TokenHash::from_wire("token_hash", request.token_hash)?,
            ttl_ms: request.ttl_ms,
            uses_max: request.uses_max,
            host_pattern: request.host_pattern,
        },
    }))
}

/// Converts a request to the command that revokes a join token.
///
/// # Errors
/// `InvalidRequest` for an invalid request id.
pub fn revoke_join_token_command(
    request: v1::RevokeJoinTokenRequest,
) -> Result<Command, Rejection> {
    Ok(Command::Access(AccessCommand::RevokeJoinToken {
        request: request_key("revoke_join_token", &request.request_id, &request)?,
        author: request.author,
        id: request.id,
    }))
}

/// Converts a request to the command that admits a worker by a join token.
///
/// # Errors
/// `InvalidRequest` for an invalid request id, or a hash of wrong length.
pub fn use_join_token_command(request: v1::UseJoinTokenRequest) -> Result<Command, Rejection> {
    Ok(Command::Access(AccessCommand::UseJoinToken {
        request: request_key("use_join_token", &request.request_id, &request)?,
        id: request.id,
        token: TokenHash::from_wire("token_hash", request.token_hash)?,
        host: request.host,
    }))
}
