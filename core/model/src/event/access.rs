//! Events about users, join tokens and admitted workers. They never contain a token.

use serde::{Deserialize, Serialize};

use crate::access::Role;
use crate::time::TimeMs;

/// A change of users or of join tokens, or a worker admitted by a join token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessChange {
    /// A user was added.
    UserAdded {
        /// Name of the user.
        name: String,
        /// Role of the user.
        role: Role,
        /// Queues in which the role applies, ascending.
        queues: Vec<String>,
        /// User who issued the command.
        author: String,
    },
    /// A user was removed.
    UserRemoved {
        /// Name of the user.
        name: String,
        /// User who issued the command.
        author: String,
    },
    /// A user's token was replaced; the previous one is invalid.
    UserTokenRotated {
        /// Name of the user.
        name: String,
        /// User who issued the command.
        author: String,
    },
    /// A join token was created.
    JoinTokenAdded {
        /// Name of the token, which is not secret.
        id: String,
        /// Time of expiry.
        expires_at: TimeMs,
        /// Maximum number of workers that it admits.
        uses_max: u32,
        /// Pattern of admitted host names; `None`: every host.
        host_pattern: Option<String>,
        /// User who issued the command.
        author: String,
    },
    /// A join token was revoked.
    JoinTokenRevoked {
        /// Name of the token.
        id: String,
        /// User who issued the command.
        author: String,
    },
    /// A worker was admitted by a join token.
    WorkerJoined {
        /// Name of its host, as in its certificate.
        host: String,
        /// Name of the token.
        token: String,
        /// Number of workers that the token may still admit.
        uses_left: u32,
    },
}

impl AccessChange {
    /// Whether only admins may read it, as with lists of users and tokens.
    #[must_use]
    pub const fn is_for_admins(&self) -> bool {
        !matches!(self, Self::WorkerJoined { .. })
    }
}
