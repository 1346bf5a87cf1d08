//! Commands about users and join tokens.

use serde::{Deserialize, Serialize};

use crate::access::{JoinGrant, TokenHash, User};
use crate::ids::RequestKey;

/// A command about users, or about the admission of workers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessCommand {
    /// Adds a user.
    AddUser {
        /// Idempotency key.
        request: RequestKey,
        /// User who issued the command.
        author: String,
        /// The new user's name.
        name: String,
        /// Role, queues and token of the user.
        user: User,
    },
    /// Removes a user.
    RemoveUser {
        /// Idempotency key.
        request: RequestKey,
        /// User who issued the command.
        author: String,
        /// Name of the user.
        name: String,
    },
    /// Replaces a user's token; the previous one becomes invalid.
    RotateToken {
        /// Idempotency key.
        request: RequestKey,
        /// User who issued the command.
        author: String,
        /// Name of the user.
        name: String,
        /// Hash of the new token.
        token: TokenHash,
    },
    /// Creates a join token for workers.
    AddJoinToken {
        /// Idempotency key.
        request: RequestKey,
        /// User who issued the command.
        author: String,
        /// Name of the token, which is not secret.
        id: String,
        /// Permissions of the token.
        grant: JoinGrant,
    },
    /// Revokes a join token.
    RevokeJoinToken {
        /// Idempotency key.
        request: RequestKey,
        /// User who issued the command.
        author: String,
        /// Name of the token.
        id: String,
    },
    /// Redeems a join token: the worker is issued a certificate if this succeeds.
    UseJoinToken {
        /// Idempotency key: a retry counts once.
        request: RequestKey,
        /// Name of the token.
        id: String,
        /// Hash of the token that the worker presented.
        token: TokenHash,
        /// The name of the worker's host.
        host: String,
    },
}

impl AccessCommand {
    /// Key of the client's request.
    pub const fn request_mut(&mut self) -> &mut RequestKey {
        match self {
            Self::AddUser { request, .. }
            | Self::RemoveUser { request, .. }
            | Self::RotateToken { request, .. }
            | Self::AddJoinToken { request, .. }
            | Self::RevokeJoinToken { request, .. }
            | Self::UseJoinToken { request, .. } => request,
        }
    }
}
