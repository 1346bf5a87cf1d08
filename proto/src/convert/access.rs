//! Users as clients see them.

use muster_core::access::{Role, TokenHash, User};
use muster_core::command::{AccessCommand, Command};
use muster_core::rejection::Rejection;
use muster_core::state::State;

use crate::convert::ids::request_id;
use crate::convert::{InvalidField, Twin};
use crate::v1;

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

/// The role of a wire's word; none if it names none.
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

/// The command that adds a user.
///
/// # Errors
/// `InvalidRequest` for a bad request id, a missing role, or a hash of another length.
pub fn add_user_command(request: v1::AddUserRequest) -> Result<Command, Rejection> {
    let id = request_id("request_id", &request.request_id)?;
    let role = role_from_wire(request.role());
    let role =
        role.ok_or_else(|| InvalidField::new("role", "must be viewer, user, operator or admin"))?;
    let token = request
        .token_hash
        .map(|hash| TokenHash::from_wire("token_hash", hash));
    Ok(Command::Access(AccessCommand::AddUser {
        request: id,
        author: request.author,
        name: request.name,
        user: User {
            role,
            queues: request.queues.into_iter().collect(),
            token: token.transpose()?,
        },
    }))
}

/// The command that removes a user.
///
/// # Errors
/// `InvalidRequest` for a bad request id.
pub fn remove_user_command(request: v1::RemoveUserRequest) -> Result<Command, Rejection> {
    Ok(Command::Access(AccessCommand::RemoveUser {
        request: request_id("request_id", &request.request_id)?,
        author: request.author,
        name: request.name,
    }))
}

/// The command that gives a user another token.
///
/// # Errors
/// `InvalidRequest` for a bad request id, or a hash of another length.
pub fn rotate_token_command(request: v1::RotateUserTokenRequest) -> Result<Command, Rejection> {
    Ok(Command::Access(AccessCommand::RotateToken {
        request: request_id("request_id", &request.request_id)?,
        author: request.author,
        name: request.name,
        token: TokenHash::from_wire("token_hash", request.token_hash)?,
    }))
}

/// All users of a state.
#[must_use]
pub fn users_to_wire(state: &State) -> v1::ListUsersResponse {
    let users = state.users.iter().map(|(name, user)| v1::UserInfo {
        name: name.to_string(),
        role: v1::UserRole::from(user.role).into(),
        queues: user.queues.iter().cloned().collect(),
        has_token: user.token.is_some(),
    });
    v1::ListUsersResponse {
        revision: state.revision.get(),
        users: users.collect(),
    }
}
