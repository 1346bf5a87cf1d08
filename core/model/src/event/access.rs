//! What an event tells of who may do what, and of who came in. Nothing of a token is in it.

use serde::{Deserialize, Serialize};

use crate::access::Role;
use crate::time::TimeMs;

/// A change of users or of join tokens, or a worker that came in by one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AccessChange {
    /// Somebody new may do something.
    UserAdded {
        /// Who.
        name: String,
        /// What.
        role: Role,
        /// Queues that the role counts for, ascending.
        queues: Vec<String>,
        /// Who decided it.
        author: String,
    },
    /// Somebody may do nothing any more.
    UserRemoved {
        /// Who.
        name: String,
        /// Who decided it.
        author: String,
    },
    /// A user has another token; the one before counts no more.
    UserTokenRotated {
        /// Whose.
        name: String,
        /// Who changed it.
        author: String,
    },
    /// Workers may join by another token.
    JoinTokenAdded {
        /// Its name, which is no secret.
        id: String,
        /// When it counts no more.
        expires_at: TimeMs,
        /// Workers that it lets in.
        uses_max: u32,
        /// The hosts that it lets in; none: every host.
        host_pattern: Option<String>,
        /// Who made it.
        author: String,
    },
    /// Nobody joins by a token any more.
    JoinTokenRevoked {
        /// Its name.
        id: String,
        /// Who decided it.
        author: String,
    },
    /// A worker was let in by a token.
    WorkerJoined {
        /// Its host's name, which its certificate speaks for.
        host: String,
        /// The token's name.
        token: String,
        /// Workers that the token may still let in.
        uses_left: u32,
    },
}

impl AccessChange {
    /// Whether it is for admins alone, as lists of users and tokens are.
    #[must_use]
    pub const fn is_for_admins(&self) -> bool {
        !matches!(self, Self::WorkerJoined { .. })
    }
}
