//! I32: users and join tokens are within their limits, and only hashes of tokens are stored.

use muster_model::limits;

use crate::audit::{Report, Rule};
use crate::state::State;

/// Roles that apply to the whole cluster.
const OF_THE_CLUSTER: [&str; 2] = ["operator", "admin"];

pub(super) fn check(state: &State, report: &mut Report) {
    report.require(
        state.users.len() <= limits::USERS_MAX,
        Rule::Users,
        &"users",
        || format!("there are {}, over USERS_MAX", state.users.len()),
    );
    for (name, user) in &state.users {
        let subject = format!("user {name}");
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._@".contains(letter);
        let is_name =
            (1..=limits::NAME_BYTES_MAX).contains(&name.len()) && name.chars().all(is_plain);
        report.require(is_name, Rule::Users, &subject, || {
            "its name is invalid".to_owned()
        });
        let is_wide = OF_THE_CLUSTER.contains(&user.role.name());
        report.require(
            !is_wide || user.queues.is_empty(),
            Rule::Users,
            &subject,
            || format!("role {} is bound to queues", user.role),
        );
        report.require(
            user.queues.len() <= limits::QUEUES_PER_USER_MAX,
            Rule::Users,
            &subject,
            || {
                format!(
                    "is bound to {} queues, over QUEUES_PER_USER_MAX",
                    user.queues.len()
                )
            },
        );
    }
    check_tokens(state, report);
    check_join_tokens(state, report);
}

/// Checks that a token proves a single user: the hashed text contains the name.
fn check_tokens(state: &State, report: &mut Report) {
    let mut hashes: Vec<[u8; 32]> = state
        .users
        .values()
        .filter_map(|user| Some(user.token?.0))
        .collect();
    let count = hashes.len();
    hashes.sort_unstable();
    hashes.dedup();
    report.require(hashes.len() == count, Rule::Users, &"tokens", || {
        "two users have the same one".to_owned()
    });
}

/// Checks that each token has admitted at most its number of workers, and that its grant is valid.
fn check_join_tokens(state: &State, report: &mut Report) {
    let count = state.join_tokens.len();
    report.require(
        count <= limits::JOIN_TOKENS_MAX,
        Rule::Users,
        &"join tokens",
        || format!("there are {count}, over JOIN_TOKENS_MAX"),
    );
    for (id, token) in &state.join_tokens {
        let subject = format!("join token {id}");
        let (uses, max) = (token.uses, token.grant.uses_max);
        report.require(uses <= max, Rule::Users, &subject, || {
            format!("has admitted {uses} workers of {max}")
        });
        let is_within = (1..=limits::JOIN_TOKEN_USES_MAX).contains(&max)
            && (1..=limits::JOIN_TOKEN_MS_MAX).contains(&token.grant.ttl_ms);
        report.require(is_within, Rule::Users, &subject, || {
            "its lifetime or its number of workers is over the limit".to_owned()
        });
        report.require(
            token.created_at <= state.time,
            Rule::Users,
            &subject,
            || "was made in the future".to_owned(),
        );
    }
}
