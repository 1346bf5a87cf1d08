//! Script commands for users and join tokens.

use std::fmt::Write as _;

use muster_model::access::{JoinGrant, Role, TokenHash, User};
use muster_model::command::{AccessCommand, Command};

use crate::apply_scripts::runner::{Args, Result, Runner};

impl Runner {
    /// `add_user NAME ROLE [queues=A,B] [token=BYTE]`, `remove_user NAME`, `rotate_token NAME BYTE`; all with
    /// `[by=AUTHOR]`.
    pub(crate) fn access(&mut self, word: &str, args: &mut Args<'_>) -> Result<Command> {
        let request = self.request(args)?;
        let author = args.key_or("by", "root".to_owned())?;
        let name: String = args.positional()?;
        let hash = |byte: u8| TokenHash([byte; 32]);
        Ok(Command::Access(match word {
            "remove_user" => AccessCommand::RemoveUser {
                request,
                author,
                name,
            },
            "rotate_token" => AccessCommand::RotateToken {
                request,
                author,
                name,
                token: hash(args.positional()?),
            },
            _ => {
                let role: String = args.positional()?;
                let queues = args.key_or("queues", String::new())?;
                let queues = queues.split(',').filter(|queue| !queue.is_empty());
                AccessCommand::AddUser {
                    request,
                    author,
                    name,
                    user: User {
                        role: Role::named(&role).ok_or("no such role")?,
                        queues: queues.map(str::to_owned).collect(),
                        token: args.key("token")?.map(hash),
                    },
                }
            }
        }))
    }

    /// `add_join_token ID [ttl=MS] [uses=N] [hosts=PATTERN] [token=BYTE]`, `revoke_join_token ID`, both with
    /// `[by=AUTHOR]`; `use_join_token ID HOST [token=BYTE]`.
    pub(crate) fn join_token(&mut self, word: &str, args: &mut Args<'_>) -> Result<Command> {
        let request = self.request(args)?;
        let id: String = args.positional()?;
        let hash = |byte: u8| TokenHash([byte; 32]);
        Ok(Command::Access(match word {
            "use_join_token" => AccessCommand::UseJoinToken {
                request,
                id,
                host: args.positional()?,
                token: hash(args.key_or("token", 1)?),
            },
            "revoke_join_token" => AccessCommand::RevokeJoinToken {
                request,
                author: args.key_or("by", "root".to_owned())?,
                id,
            },
            _ => AccessCommand::AddJoinToken {
                request,
                author: args.key_or("by", "root".to_owned())?,
                id,
                grant: JoinGrant {
                    hash: hash(args.key_or("token", 1)?),
                    ttl_ms: args.key_or("ttl", 60_000)?,
                    uses_max: args.key_or("uses", 1)?,
                    host_pattern: args.key("hosts")?,
                },
            },
        }))
    }

    /// All join tokens.
    pub(crate) fn join_tokens(&self) -> String {
        let mut text = String::new();
        for (id, token) in &self.cluster.state.join_tokens {
            let pattern = token.grant.host_pattern.as_deref().unwrap_or("*");
            let (uses, max) = (token.uses, token.grant.uses_max);
            let _ = writeln!(text, "{id}: {uses} of {max} for {pattern}");
        }
        text
    }

    /// All users.
    pub(crate) fn users(&self) -> String {
        let mut text = String::new();
        for (name, user) in &self.cluster.state.users {
            let queues: Vec<&str> = user.queues.iter().map(String::as_str).collect();
            let token = user.token.map_or(0, |token| token.0[0]);
            let _ = writeln!(
                text,
                "{name}: {} [{}] token {token}",
                user.role,
                queues.join(",")
            );
        }
        text
    }
}
