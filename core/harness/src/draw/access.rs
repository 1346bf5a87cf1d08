//! Draws of users and join tokens: few names, so that they are added twice, changed, used up and removed.

use muster_model::access::{JoinGrant, Role, TokenHash, User};
use muster_model::command::{AccessCommand, Command};
use muster_model::testing::request_key;

use crate::draw::{Draw, REQUESTS};

/// The last one is not a valid user name.
const NAMES: [&str; 4] = ["ada", "bob", "eve@lab", "no name"];
/// Names of join tokens.
const TOKENS: [&str; 3] = ["t1", "t2", "no token"];

impl Draw<'_> {
    /// A command about users or joining workers.
    pub(super) fn access(&mut self) -> Command {
        if self.once_in(3) {
            return self.joining();
        }
        let request = request_key(self.below(REQUESTS));
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

    fn joining(&mut self) -> Command {
        let request = request_key(self.below(REQUESTS));
        let author = "root".to_owned();
        let id = self.pick(TOKENS.to_vec()).unwrap_or("t1").to_owned();
        let hash = TokenHash([u8::try_from(self.below(2)).unwrap_or(0); 32]);
        Command::Access(match self.below(6) {
            0 => AccessCommand::RevokeJoinToken {
                request,
                author,
                id,
            },
            1 | 2 => AccessCommand::AddJoinToken {
                request,
                author,
                id,
                grant: JoinGrant {
                    hash,
                    ttl_ms: self.below(60_000),
                    uses_max: u32::try_from(self.below(3)).unwrap_or(0),
                    host_pattern: self.once_in(2).then(|| "new-*".to_owned()),
                },
            },
            _ => AccessCommand::UseJoinToken {
                request,
                id,
                token: hash,
                host: (self.pick(vec!["new-1", "other", "no host"]))
                    .unwrap_or_default()
                    .to_owned(),
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

    /// Like real hashes, unique for each name.
    fn token_of(&mut self, name: &str) -> TokenHash {
        let mut hash = [0; 32];
        let ends = name.len().min(hash.len() - 8);
        hash[..ends].copy_from_slice(&name.as_bytes()[..ends]);
        hash[24..].copy_from_slice(&self.below(u64::MAX).to_le_bytes());
        TokenHash(hash)
    }
}
