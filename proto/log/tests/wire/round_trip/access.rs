//! Random commands about users and join tokens.

use muster_model::access::{JoinGrant, Role, TokenHash, User};
use muster_model::command::AccessCommand;
use proptest::collection::btree_set;
use proptest::option;
use proptest::prelude::*;

use crate::round_trip::strategies::{request, text};

pub(crate) fn command() -> impl Strategy<Value = AccessCommand> {
    let add = (request(), text(), text(), user());
    prop_oneof![
        add.prop_map(|(request, author, name, user)| AccessCommand::AddUser {
            request,
            author,
            name,
            user,
        }),
        (request(), text(), text()).prop_map(|(request, author, name)| {
            AccessCommand::RemoveUser {
                request,
                author,
                name,
            }
        }),
        (request(), text(), text(), token()).prop_map(|(request, author, name, token)| {
            AccessCommand::RotateToken {
                request,
                author,
                name,
                token,
            }
        }),
        (request(), text(), text(), grant()).prop_map(|(request, author, id, grant)| {
            AccessCommand::AddJoinToken {
                request,
                author,
                id,
                grant,
            }
        }),
        (request(), text(), text()).prop_map(|(request, author, id)| {
            AccessCommand::RevokeJoinToken {
                request,
                author,
                id,
            }
        }),
        (request(), text(), token(), text()).prop_map(|(request, id, token, host)| {
            AccessCommand::UseJoinToken {
                request,
                id,
                token,
                host,
            }
        }),
    ]
}

fn user() -> impl Strategy<Value = User> {
    let role = proptest::sample::select(Role::ALL.to_vec());
    (role, btree_set(text(), 0..3), option::of(token())).prop_map(|(role, queues, token)| User {
        role,
        queues,
        token,
    })
}

fn grant() -> impl Strategy<Value = JoinGrant> {
    let limits = (any::<u64>(), any::<u32>(), option::of(text()));
    (token(), limits).prop_map(|(hash, (ttl_ms, uses_max, host_pattern))| JoinGrant {
        hash,
        ttl_ms,
        uses_max,
        host_pattern,
    })
}

fn token() -> impl Strategy<Value = TokenHash> {
    any::<[u8; 32]>().prop_map(TokenHash)
}
