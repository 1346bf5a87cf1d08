//! Who may do what.

use serde::{Deserialize, Serialize};

use crate::access::{JoinGrant, TokenHash, User};
use crate::ids::RequestId;

/// A command about users, and about workers that come in. Since command format 4.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessCommand {
    /// Somebody new may do something.
    AddUser {
        /// Idempotency key.
        request: RequestId,
        /// Who adds them.
        author: String,
        /// The new user's name.
        name: String,
        /// What the user may do.
        user: User,
    },
    /// Somebody may do nothing any more.
    RemoveUser {
        /// Idempotency key.
        request: RequestId,
        /// Who removes them.
        author: String,
        /// Whom.
        name: String,
    },
    /// A user gets another token; the one before counts no more.
    RotateToken {
        /// Idempotency key.
        request: RequestId,
        /// Who changes it.
        author: String,
        /// Whose.
        name: String,
        /// Of the new token.
        token: TokenHash,
    },
    /// Workers may join by a token.
    AddJoinToken {
        /// Idempotency key.
        request: RequestId,
        /// Who makes it.
        author: String,
        /// Its name, which is no secret.
        id: String,
        /// What it allows.
        grant: JoinGrant,
    },
    /// Nobody joins by a token any more.
    RevokeJoinToken {
        /// Idempotency key.
        request: RequestId,
        /// Who revokes it.
        author: String,
        /// Its name.
        id: String,
    },
    /// A worker shows a token, and is given a certificate if this succeeds.
    UseJoinToken {
        /// Idempotency key: one that is tried again counts once.
        request: RequestId,
        /// The token's name.
        id: String,
        /// Of what the worker showed.
        token: TokenHash,
        /// The name of the worker's host.
        host: String,
    },
}
