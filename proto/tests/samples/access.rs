//! Samples of the fourth version: users with roles.

use std::sync::Arc;

use muster_core::access::{Role, TokenHash, User};
use muster_core::command::{AccessCommand, Command};
use muster_core::state::State;

use super::REQUEST;

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
                author,
                name,
                token: TOKEN,
            },
        ),
    ];
    { commands.into_iter() }
        .map(|(name, command)| (name, Command::Access(command)))
        .collect()
}

/// The first version's state, with a user with a token and one with a certificate alone.
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

fn bound() -> User {
    User {
        role: Role::User,
        queues: ["default".to_owned(), "research".to_owned()].into(),
        token: Some(TOKEN),
    }
}
