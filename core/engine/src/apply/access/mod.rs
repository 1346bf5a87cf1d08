//! Users, tokens and join tokens: commands that change access.

pub(super) mod join;

use std::sync::Arc;

use muster_model::access::{Role, TokenHash, User, is_user_name};
use muster_model::command::AccessCommand;
use muster_model::event::{AccessChange, EventKind};
use muster_model::ids::RequestKey;
use muster_model::limits;
use muster_model::rejection::Rejection;

use crate::apply::{Step, invalid, require_length};
use crate::state::Answer;

impl Step<'_> {
    pub(super) fn access(&mut self, command: &AccessCommand) -> Result<Answer, Rejection> {
        match command {
            AccessCommand::AddUser {
                request,
                author,
                name,
                user,
            } => self.add_user(*request, author, name, user),
            AccessCommand::RemoveUser {
                request,
                author,
                name,
            } => self.remove_user(*request, author, name),
            AccessCommand::RotateToken {
                request,
                author,
                name,
                token,
            } => self.rotate_token(*request, author, name, *token),
            AccessCommand::AddJoinToken {
                request,
                author,
                id,
                grant,
            } => self.add_join_token(*request, author, id, grant),
            AccessCommand::RevokeJoinToken {
                request,
                author,
                id,
            } => self.revoke_join_token(*request, author, id),
            AccessCommand::UseJoinToken {
                request,
                id,
                token,
                host,
            } => self.use_join_token(*request, id, *token, host),
        }
    }

    fn add_user(
        &mut self,
        request: RequestKey,
        author: &str,
        name: &str,
        user: &User,
    ) -> Result<Answer, Rejection> {
        check_text("author", author)?;
        check_name("name", name)?;
        check_queues(user)?;
        self.once(request, |step| {
            let users = &step.state.users;
            if users.contains_key(name) {
                return Err(Rejection::UserExists(name.to_owned()));
            }
            if users.len() >= limits::USERS_MAX {
                return Err(Rejection::ClusterFull {
                    what: "users".to_owned(),
                    limit_name: "USERS_MAX".to_owned(),
                    limit: limits::USERS_MAX as u64,
                });
            }
            let queues = &step.state.queues;
            if let Some(unknown) = user
                .queues
                .iter()
                .find(|queue| !queues.contains_key(queue.as_str()))
            {
                return Err(Rejection::UnknownQueue(unknown.clone()));
            }
            step.state
                .users
                .insert(Arc::from(name), Arc::new(user.clone()));
            step.emit(EventKind::AccessChanged(AccessChange::UserAdded {
                name: name.to_owned(),
                role: user.role,
                queues: user.queues.iter().cloned().collect(),
                author: author.to_owned(),
            }));
            Ok(Answer::Done)
        })
    }

    fn remove_user(
        &mut self,
        request: RequestKey,
        author: &str,
        name: &str,
    ) -> Result<Answer, Rejection> {
        check_text("author", author)?;
        self.once(request, |step| {
            if step.state.users.remove(name).is_none() {
                return Err(Rejection::UnknownUser(name.to_owned()));
            }
            step.emit(EventKind::AccessChanged(AccessChange::UserRemoved {
                name: name.to_owned(),
                author: author.to_owned(),
            }));
            Ok(Answer::Done)
        })
    }

    fn rotate_token(
        &mut self,
        request: RequestKey,
        author: &str,
        name: &str,
        token: TokenHash,
    ) -> Result<Answer, Rejection> {
        check_text("author", author)?;
        self.once(request, |step| {
            let user = step.state.users.get_mut(name);
            let user = user.ok_or_else(|| Rejection::UnknownUser(name.to_owned()))?;
            Arc::make_mut(user).token = Some(token);
            step.emit(EventKind::AccessChanged(AccessChange::UserTokenRotated {
                name: name.to_owned(),
                author: author.to_owned(),
            }));
            Ok(Answer::Done)
        })
    }
}

pub(super) fn check_text(field: &str, text: &str) -> Result<(), Rejection> {
    if text.is_empty() {
        return Err(invalid(field, "must not be empty".to_owned()));
    }
    require_length(field, text, "NAME_BYTES_MAX", limits::NAME_BYTES_MAX)
}

/// Checks that a name is usable verbatim in certificates and tokens.
pub(super) fn check_name(field: &str, name: &str) -> Result<(), Rejection> {
    check_text(field, name)?;
    if is_user_name(name) {
        return Ok(());
    }
    Err(invalid(
        field,
        format!("`{name}` must be letters, digits and `-._@`"),
    ))
}

fn check_queues(user: &User) -> Result<(), Rejection> {
    if user.queues.len() > limits::QUEUES_PER_USER_MAX {
        let limit = limits::QUEUES_PER_USER_MAX;
        let given = user.queues.len();
        return Err(invalid(
            "queues",
            format!("{given} are over the limit of {limit} (QUEUES_PER_USER_MAX)"),
        ));
    }
    if user.role.is_restricted_to_queues() || user.queues.is_empty() {
        return Ok(());
    }
    let (viewer, plain) = (Role::Viewer, Role::User);
    let role = user.role;
    Err(invalid(
        "queues",
        format!(
            "role `{role}` counts for the whole cluster: name none, or give the role `{viewer}` or `{plain}`"
        ),
    ))
}
