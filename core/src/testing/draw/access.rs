//! Draws of users: few names, so that they are added twice, changed and removed.

use crate::access::{Role, TokenHash, User};
use crate::command::{AccessCommand, Command};
use crate::testing::builders::request_id;
use crate::testing::draw::{Draw, REQUESTS};

/// The last is none that a user may have.
const NAMES: [&str; 4] = ["ada", "bob", "eve@lab", "no name"];

impl Draw<'_> {
    /// Something about users.
    pub(super) fn access(&mut self) -> Command {
        let request = request_id(self.below(REQUESTS));
        let author = "root".to_owned();
        let drawn = usize::try_from(self.below(4)).unwrap_or(0);
        let name = NAMES[drawn].to_owned();
        Command::Access(match self.below(5) {
            0 => AccessCommand::RemoveUser {
                request,
                author,
                name,
            },
            1 => AccessCommand::RotateToken {
                request,
                author,
                token: self.token_of(&name),
                name,
            },
            _ => AccessCommand::AddUser {
                request,
                author,
                user: self.user(&name),
                name,
            },
        })
    }

    fn user(&mut self, name: &str) -> User {
        let role = self.pick(Role::ALL.to_vec()).unwrap_or(Role::Viewer);
        let queues = if self.once_in(2) {
            &["research", "none/x"][..]
        } else {
            &[]
        };
        User {
            role,
            queues: queues.iter().map(|queue| (*queue).to_owned()).collect(),
            token: (!self.once_in(4)).then(|| self.token_of(name)),
        }
    }

    /// As hashes are: no two names have the same.
    fn token_of(&mut self, name: &str) -> TokenHash {
        let mut hash = [0; 32];
        let ends = name.len().min(hash.len() - 8);
        hash[..ends].copy_from_slice(&name.as_bytes()[..ends]);
        hash[24..].copy_from_slice(&self.below(u64::MAX).to_le_bytes());
        TokenHash(hash)
    }
}
