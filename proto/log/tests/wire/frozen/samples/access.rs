//! Samples of the fourth version: users with roles, and join tokens.

use std::sync::Arc;

use muster_engine::state::State;
use muster_model::access::{JoinGrant, JoinToken, Role, TokenHash, User};
use muster_model::command::{AccessCommand, Command};
use muster_model::event::{AccessChange, EventKind};
use muster_model::time::TimeMs;

use crate::frozen::samples::REQUEST;

const TOKEN: TokenHash = TokenHash([0xA5; 32]);

/// The commands, under the names of their files.
pub(crate) fn commands() -> Vec<(&'static str, Command)> {
    let (author, name) = ("grace".to_owned(), "ada".to_owned());
    let commands = [
        (
            "add_user",
            AccessCommand::AddUser {
                request: REQUEST,
                author: author.clone(),
                name: name.clone(),
                user: bound(),
            },
        ),
        (
            "remove_user",
            AccessCommand::RemoveUser {
                request: REQUEST,
                author: author.clone(),
                name: name.clone(),
            },
        ),
        (
            "rotate_token",
            AccessCommand::RotateToken {
                request: REQUEST,
                author: author.clone(),
                name,
                token: TOKEN,
            },
        ),
        (
            "add_join_token",
            AccessCommand::AddJoinToken {
                request: REQUEST,
                author: author.clone(),
                id: "a1".to_owned(),
                grant: grant(Some("gpu-*")),
            },
        ),
        (
            "revoke_join_token",
            AccessCommand::RevokeJoinToken {
                request: REQUEST,
                author,
                id: "a1".to_owned(),
            },
        ),
        (
            "use_join_token",
            AccessCommand::UseJoinToken {
                request: REQUEST,
                id: "a1".to_owned(),
                token: TOKEN,
                host: "gpu-1".to_owned(),
            },
        ),
    ];
    commands
        .into_iter()
        .map(|(name, command)| (name, Command::Access(command)))
        .collect()
}

/// The first version's state, with a user with a token and one with only a certificate.
pub(crate) fn state() -> State {
    let mut parts = super::state::parts();
    let admin = User {
        role: Role::Admin,
        queues: [].into(),
        token: None,
    };
    parts.users = vec![(Arc::from("ada"), bound()), (Arc::from("grace"), admin)];
    State::restore(parts)
}

/// The first version's state, with a join token that was used and one for every host.
pub(crate) fn state_with_join_tokens() -> State {
    let mut parts = super::state::parts();
    let token = |pattern, uses| JoinToken {
        grant: grant(pattern),
        author: "grace".to_owned(),
        created_at: TimeMs(1_000),
        uses,
    };
    parts.join_tokens = vec![
        (Arc::from("a1"), token(Some("gpu-*"), 3)),
        (Arc::from("b2"), token(None, 0)),
    ];
    State::restore(parts)
}

/// One event of every change.
pub(crate) fn kinds() -> Vec<EventKind> {
    let (name, author, id) = ("ada".to_owned(), "grace".to_owned(), "a1".to_owned());
    let changes = [
        AccessChange::UserAdded {
            name: name.clone(),
            role: Role::User,
            queues: vec!["research".to_owned()],
            author: author.clone(),
        },
        AccessChange::UserRemoved {
            name: name.clone(),
            author: author.clone(),
        },
        AccessChange::UserTokenRotated {
            name,
            author: author.clone(),
        },
        AccessChange::JoinTokenAdded {
            id: id.clone(),
            expires_at: TimeMs(61_000),
            uses_max: 20,
            host_pattern: Some("gpu-*".to_owned()),
            author: author.clone(),
        },
        AccessChange::JoinTokenRevoked {
            id: id.clone(),
            author,
        },
        AccessChange::WorkerJoined {
            host: "gpu-1".to_owned(),
            token: id,
            uses_left: 19,
        },
    ];
    changes.map(EventKind::AccessChanged).into()
}

fn grant(host_pattern: Option<&str>) -> JoinGrant {
    JoinGrant {
        hash: TOKEN,
        ttl_ms: 60_000,
        uses_max: 20,
        host_pattern: host_pattern.map(str::to_owned),
    }
}

fn bound() -> User {
    User {
        role: Role::User,
        queues: ["default".to_owned(), "research".to_owned()].into(),
        token: Some(TOKEN),
    }
}
