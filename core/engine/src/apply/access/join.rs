//! Join tokens, which admit workers that have no certificate yet.

use std::sync::Arc;

use muster_model::access::{JoinGrant, JoinToken, TokenHash, is_user_name};
use muster_model::command::HostHealth;
use muster_model::event::{AccessChange, EventKind};
use muster_model::ids::RequestKey;
use muster_model::limits;
use muster_model::rejection::Rejection;

use crate::apply::access::{check_name, check_text};
use crate::apply::{Step, invalid};
use crate::state::Answer;

impl Step<'_> {
    pub(in crate::apply) fn add_join_token(
        &mut self,
        request: RequestKey,
        author: &str,
        id: &str,
        grant: &JoinGrant,
    ) -> Result<Answer, Rejection> {
        check_text("author", author)?;
        check_name("id", id)?;
        check_grant(grant)?;
        self.once(request, |step| {
            let now = step.state.time;
            let tokens = &mut step.state.join_tokens;
            if tokens.contains_key(id) {
                return Err(Rejection::JoinTokenExists(id.to_owned()));
            }
            let expired: Vec<Arc<str>> = tokens
                .iter()
                .filter(|(_, token)| now >= token.expires_at())
                .map(|(id, _)| Arc::clone(id))
                .collect();
            if tokens.len() - expired.len() >= limits::JOIN_TOKENS_MAX {
                return Err(Rejection::ClusterFull {
                    what: "join tokens".to_owned(),
                    limit_name: "JOIN_TOKENS_MAX".to_owned(),
                    limit: limits::JOIN_TOKENS_MAX as u64,
                });
            }
            // Expired tokens were kept only for the error message to those who present one.
            for id in &expired {
                tokens.remove(id);
            }
            let token = JoinToken {
                grant: grant.clone(),
                author: author.to_owned(),
                created_at: now,
                uses: 0,
            };
            let expires_at = token.expires_at();
            tokens.insert(Arc::from(id), Arc::new(token));
            step.emit(EventKind::AccessChanged(AccessChange::JoinTokenAdded {
                id: id.to_owned(),
                expires_at,
                uses_max: grant.uses_max,
                host_pattern: grant.host_pattern.clone(),
                author: author.to_owned(),
            }));
            Ok(Answer::Done)
        })
    }

    pub(in crate::apply) fn revoke_join_token(
        &mut self,
        request: RequestKey,
        author: &str,
        id: &str,
    ) -> Result<Answer, Rejection> {
        check_text("author", author)?;
        self.once(request, |step| {
            if step.state.join_tokens.remove(id).is_none() {
                return Err(Rejection::UnknownJoinToken(id.to_owned()));
            }
            step.emit(EventKind::AccessChanged(AccessChange::JoinTokenRevoked {
                id: id.to_owned(),
                author: author.to_owned(),
            }));
            Ok(Answer::Done)
        })
    }

    pub(in crate::apply) fn use_join_token(
        &mut self,
        request: RequestKey,
        id: &str,
        hash: TokenHash,
        host: &str,
    ) -> Result<Answer, Rejection> {
        check_name("host", host)?;
        self.once(request, |step| {
            let (now, state) = (step.state.time, &mut *step.state);
            let is_up = state
                .host_by_name(host)
                .is_some_and(|host| host.health == HostHealth::Up);
            let token = state.join_tokens.get_mut(id);
            // A wrong secret is reported like an unknown token.
            let token = { token.filter(|token| token.grant.hash.matches(&hash)) }
                .ok_or_else(|| Rejection::UnknownJoinToken(id.to_owned()))?;
            if let Some(why) = token.invalid_reason(now) {
                let id = id.to_owned();
                return Err(Rejection::JoinTokenSpent { id, why });
            }
            if !token.is_for(host) {
                return Err(Rejection::JoinTokenOfOthers {
                    id: id.to_owned(),
                    pattern: token.grant.host_pattern.clone().unwrap_or_default(),
                    host: host.to_owned(),
                });
            }
            if is_up {
                return Err(Rejection::HostIsUp(host.to_owned()));
            }
            let token = Arc::make_mut(token);
            token.uses += 1;
            let uses_left = token.uses_left();
            step.emit(EventKind::AccessChanged(AccessChange::WorkerJoined {
                host: host.to_owned(),
                token: id.to_owned(),
                uses_left,
            }));
            Ok(Answer::Done)
        })
    }
}

fn check_grant(grant: &JoinGrant) -> Result<(), Rejection> {
    let ranges = [
        (
            "ttl_ms",
            grant.ttl_ms,
            limits::JOIN_TOKEN_MS_MAX,
            "JOIN_TOKEN_MS_MAX",
        ),
        (
            "uses_max",
            u64::from(grant.uses_max),
            u64::from(limits::JOIN_TOKEN_USES_MAX),
            "JOIN_TOKEN_USES_MAX",
        ),
    ];
    for (field, given, limit, limit_name) in ranges {
        if !(1..=limit).contains(&given) {
            let rule = format!("{given} must be from 1 to {limit} ({limit_name})");
            return Err(invalid(field, rule));
        }
    }
    let Some(pattern) = &grant.host_pattern else {
        return Ok(());
    };
    check_text("host_pattern", pattern)?;
    if is_user_name(&pattern.replace('*', "-")) {
        return Ok(());
    }
    let rule = format!("`{pattern}` must be letters, digits, `-._@`, and `*` for any of them");
    Err(invalid("host_pattern", rule))
}
