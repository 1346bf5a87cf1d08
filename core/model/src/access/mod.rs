//! Who may do what: users, their roles and the queues that those count for.
//!
//! A token is never here: whoever makes one keeps it, and only its hash is replicated.

mod join;

use std::collections::BTreeSet;
use std::fmt;

pub use join::{JoinGrant, JoinToken};
use serde::{Deserialize, Serialize};

/// What a user may do; each may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Sees jobs and their output.
    Viewer,
    /// Submits jobs, and acts on some.
    User,
    /// Acts on everybody's jobs, and takes hosts and GPUs in and out.
    Operator,
    /// Decides on queues, topology, rules, replicas, users and backups.
    Admin,
}

impl Role {
    /// All of them, the weakest first.
    pub const ALL: [Self; 4] = [Self::Viewer, Self::User, Self::Operator, Self::Admin];

    /// Its name: `viewer`, `user`, `operator`, `admin`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::User => "user",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// The role of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    /// Whether it counts for some queues alone where some are named; the others count for the whole cluster.
    #[must_use]
    pub const fn is_of_queues(self) -> bool {
        matches!(self, Self::Viewer | Self::User)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// SHA-256 of a token. A token is 256 random bits, so that none can be found by trying, and its text holds the user's name, so
/// that no two users' hashes are alike.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenHash(pub [u8; 32]);

impl TokenHash {
    /// Whether both are the same, in a time that does not tell how much of them is.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        pairs.fold(0, |different, (one, two)| different | (one ^ two)) == 0
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TokenHash(..)")
    }
}

/// One user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// What the user may do.
    pub role: Role,
    /// Queues for which the role counts, with all queues in them; see [`User::sees`] and [`User::submits_to`] for none.
    pub queues: BTreeSet<String>,
    /// Of the user's token; none: a certificate alone proves who it is.
    pub token: Option<TokenHash>,
}

impl User {
    /// Whether the user may see a job of a queue, and of a user of this name.
    ///
    /// Viewers without queues see everything; users without queues see what is their own.
    #[must_use]
    pub fn sees(&self, own_name: &str, job_user: &str, queue: &str) -> bool {
        match self.role {
            Role::Viewer => self.queues.is_empty() || self.is_bound_to(queue),
            Role::User => own_name == job_user || self.is_bound_to(queue),
            Role::Operator | Role::Admin => true,
        }
    }

    /// Whether the user may cancel, suspend and resume such a job.
    #[must_use]
    pub fn acts_on(&self, own_name: &str, job_user: &str, queue: &str) -> bool {
        self.role >= Role::User && self.sees(own_name, job_user, queue)
    }

    /// Whether the user may submit to a queue: to any where none is named.
    #[must_use]
    pub fn submits_to(&self, queue: &str) -> bool {
        let everywhere = !self.role.is_of_queues() || self.queues.is_empty();
        self.role >= Role::User && (everywhere || self.is_bound_to(queue))
    }

    fn is_bound_to(&self, queue: &str) -> bool {
        let is_in = |around: &String| {
            let rest = queue.strip_prefix(around.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.queues.iter().any(is_in)
    }
}

/// Whether a text can be a user's name: what stands in certificates and tokens as it is.
#[must_use]
pub fn is_user_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._@".contains(&byte);
    !name.is_empty() && name.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(role: Role, queues: &[&str]) -> User {
        User {
            role,
            queues: queues.iter().map(|queue| (*queue).to_owned()).collect(),
            token: None,
        }
    }

    #[test]
    fn a_role_counts_for_its_queues_and_those_in_them() {
        let bound = user(Role::User, &["research"]);
        assert!(bound.sees("ada", "bob", "research"));
        assert!(bound.acts_on("ada", "bob", "research/vision"));
        assert!(!bound.sees("ada", "bob", "researchers"));
        assert!(!bound.sees("ada", "bob", "production"));
        assert!(
            bound.sees("ada", "ada", "production"),
            "what is one's own is seen everywhere"
        );
        assert!(bound.submits_to("research/vision") && !bound.submits_to("production"));
    }

    #[test]
    fn without_queues_viewers_see_all_and_users_what_is_their_own() {
        let (viewer, plain) = (user(Role::Viewer, &[]), user(Role::User, &[]));
        assert!(viewer.sees("eve", "bob", "research"));
        assert!(!viewer.acts_on("eve", "eve", "research") && !viewer.submits_to("research"));
        assert!(plain.sees("ada", "ada", "research") && !plain.sees("ada", "bob", "research"));
        assert!(plain.submits_to("research"));
        for role in [Role::Operator, Role::Admin] {
            let strong = user(role, &[]);
            assert!(strong.acts_on("ada", "bob", "research") && strong.submits_to("research"));
        }
    }

    #[test]
    fn hashes_are_compared_whole() {
        let (one, mut other) = (TokenHash([7; 32]), TokenHash([7; 32]));
        assert!(one.matches(&other));
        other.0[31] = 8;
        assert!(!one.matches(&other));
        assert_eq!(format!("{one:?}"), "TokenHash(..)");
    }
}
