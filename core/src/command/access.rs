//! Who may do what.

use serde::{Deserialize, Serialize};

use crate::access::{TokenHash, User};
use crate::ids::RequestId;

/// A command about users. Since command format 4.
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
}
