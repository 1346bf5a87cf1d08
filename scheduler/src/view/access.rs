//! Users and join tokens.

use muster_engine::state::State;
use muster_proto::v1;

/// All users of a state.
pub(crate) fn users_to_wire(state: &State) -> v1::ListUsersResponse {
    let users = state.users.iter().map(|(name, user)| v1::UserInfo {
        name: name.to_string(),
        role: v1::UserRole::from(user.role).into(),
        queues: user.queues.iter().cloned().collect(),
        has_token: user.token.is_some(),
    });
    v1::ListUsersResponse {
        revision: state.revision.get(),
        users: users.collect(),
    }
}

/// All join tokens of a state, including those spent by the log's time.
pub(crate) fn join_tokens_to_wire(state: &State) -> v1::ListJoinTokensResponse {
    let tokens = state
        .join_tokens
        .iter()
        .map(|(id, token)| v1::JoinTokenInfo {
            id: id.to_string(),
            author: token.author.clone(),
            created_at_ms: token.created_at.0,
            expires_at_ms: token.expires_at().0,
            uses_max: token.grant.uses_max,
            uses: token.uses,
            host_pattern: token.grant.host_pattern.clone(),
            is_spent: token.invalid_reason(state.time).is_some(),
        });
    v1::ListJoinTokensResponse {
        revision: state.revision.get(),
        tokens: tokens.collect(),
    }
}
