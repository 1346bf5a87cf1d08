//! Access control: users, their roles and the queues in which the roles apply.
//!
//! Tokens are never stored here: only their hashes are replicated, and the creator keeps the token.

mod join;

use std::collections::BTreeSet;
use std::fmt;

pub use join::{JoinGrant, JoinToken};
use serde::{Deserialize, Serialize};

/// Permissions of a user; each role includes the permissions of those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Role {
    /// Reads jobs and their output.
    Viewer,
    /// Submits jobs, and acts on some.
    User,
    /// Acts on the jobs of all users, and blocks and unblocks hosts and GPUs.
    Operator,
    /// Configures queues, topology, rules, replicas, users and backups.
    Admin,
}

impl Role {
    /// All roles, the weakest first.
    pub const ALL: [Self; 4] = [Self::Viewer, Self::User, Self::Operator, Self::Admin];

    /// Name of the role: `viewer`, `user`, `operator`, `admin`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::User => "user",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// Parses the name of a role.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    /// Whether the role can be restricted to queues; the other roles apply to the whole cluster.
    #[must_use]
    pub const fn is_restricted_to_queues(self) -> bool {
        matches!(self, Self::Viewer | Self::User)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// SHA-256 of a token. A token is 256 random bits, which rules out guessing, and its text contains the user's
/// name, so that the hashes of two users differ.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenHash(pub [u8; 32]);

impl TokenHash {
    /// Whether both are equal, compared in constant time.
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

/// A user with a role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// Role of the user.
    pub role: Role,
    /// Queues in which the role applies, children included; see [`User::sees`] and [`User::submits_to`] for
    /// an empty set.
    pub queues: BTreeSet<String>,
    /// Hash of the user's token; `None`: the user authenticates by certificate only.
    pub token: Option<TokenHash>,
}

impl User {
    /// Whether the user may read a job of this queue and this owner.
    ///
    /// Viewers without queues read everything; users without queues read their own jobs.
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

    /// Whether the user may submit to a queue; to any queue if none is listed.
    #[must_use]
    pub fn submits_to(&self, queue: &str) -> bool {
        let everywhere = !self.role.is_restricted_to_queues() || self.queues.is_empty();
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

/// Whether a text is a valid user name, which appears verbatim in certificates and tokens.
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
