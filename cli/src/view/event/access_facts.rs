//! Events about users, roles and join tokens.

use muster_proto::v1;
use muster_proto::v1::access_changed::{
    JoinTokenAdded, JoinTokenRevoked, Kind as Change, UserAdded, UserRemoved, UserTokenRotated,
    WorkerJoined,
};
use muster_proto::v1::event::Kind;
use serde_json::{Value, json};

use crate::output::{Tone, instant};
use crate::view::event::Facts;
use crate::view::event::cluster_facts::facts;

/// Text of an event about users and join tokens; `None` for others.
pub(super) fn of(kind: &Kind) -> Option<Facts> {
    let Kind::AccessChanged(v1::AccessChanged { kind: Some(change) }) = kind else {
        return None;
    };
    let (tone, text, detail) = match change {
        Change::UserAdded(added) => user_added(added),
        Change::UserRemoved(UserRemoved { name, author }) => (
            Tone::Plain,
            format!("user {name} removed by {author}"),
            json!({"change": "user_removed", "name": name, "author": author}),
        ),
        Change::UserTokenRotated(UserTokenRotated { name, author }) => (
            Tone::Plain,
            format!("user {name} token rotated by {author}"),
            json!({"change": "user_token_rotated", "name": name, "author": author}),
        ),
        Change::JoinTokenAdded(added) => join_token_added(added),
        Change::JoinTokenRevoked(JoinTokenRevoked { id, author }) => (
            Tone::Plain,
            format!("join token {id} revoked by {author}"),
            json!({"change": "join_token_revoked", "id": id, "author": author}),
        ),
        Change::WorkerJoined(WorkerJoined {
            host,
            join_token_id: id,
            uses_left,
        }) => (
            Tone::Good,
            format!("worker {host} joined with token {id}, {uses_left} uses left"),
            json!({"change": "worker_joined", "host": host, "join_token": id, "uses_left": uses_left}),
        ),
    };
    Some(facts("access_changed", tone, text, detail))
}

fn user_added(added: &UserAdded) -> (Tone, String, Value) {
    let UserAdded {
        name,
        role,
        queues,
        author,
    } = added;
    let bound = match queues.as_slice() {
        [] => String::new(),
        queues => format!(" in {}", queues.join(", ")),
    };
    let text = format!("user {name} added by {author}: {role}{bound}");
    let detail = json!({
        "change": "user_added", "name": name, "role": role, "queues": queues, "author": author,
    });
    (Tone::Plain, text, detail)
}

fn join_token_added(added: &JoinTokenAdded) -> (Tone, String, Value) {
    let JoinTokenAdded {
        id,
        uses_max,
        host_pattern,
        author,
        ..
    } = added;
    let expires = instant(added.expires_at_ms);
    let hosts = host_pattern.as_deref().unwrap_or("*");
    let text = format!(
        "join token {id} created by {author}: {uses_max} hosts named {hosts} until {expires}"
    );
    let detail = json!({
        "change": "join_token_added", "id": id, "uses_max": uses_max, "host_pattern": host_pattern,
        "expires_at": expires, "author": author,
    });
    (Tone::Plain, text, detail)
}
