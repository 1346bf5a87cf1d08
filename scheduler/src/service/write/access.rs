//! Changes of users and join tokens.

use muster_model::access::Role;
use muster_proto::convert::{
    add_join_token_command, add_user_command, remove_user_command, revoke_join_token_command,
    role_from_wire, rotate_token_command, use_join_token_command,
};

use crate::audit_log::Record;
use crate::service::gate::Method;
use crate::service::write::request::plain_write;

plain_write! {
    AddUserRequest => AddUserResponse, Method::of_admin("AddUser", Role::Admin),
    add_user_command, by [author],
    record |it| {
        let role = role_from_wire(it.role()).map_or_else(String::new, |role| role.to_string());
        Record::about(&it.request_id, format!("user {}, role {role}", it.name))
    },
}

plain_write! {
    RemoveUserRequest => RemoveUserResponse, Method::of_admin("RemoveUser", Role::Admin),
    remove_user_command, by [author],
    record |it| Record::about(&it.request_id, format!("user {}", it.name)),
}

plain_write! {
    RotateUserTokenRequest => RotateUserTokenResponse, Method::of_admin("RotateUserToken", Role::Admin),
    rotate_token_command, by [author],
    record |it| Record::about(&it.request_id, format!("token of user {}", it.name)),
}

plain_write! {
    AddJoinTokenRequest => AddJoinTokenResponse, Method::of_admin("AddJoinToken", Role::Admin),
    add_join_token_command, by [author],
    record |it| Record::about(&it.request_id, format!("join token {}, {} uses", it.id, it.uses_max)),
}

plain_write! {
    RevokeJoinTokenRequest => RevokeJoinTokenResponse, Method::of_admin("RevokeJoinToken", Role::Admin),
    revoke_join_token_command, by [author],
    record |it| Record::about(&it.request_id, format!("join token {}", it.id)),
}

// The part of a join in which the token is known only by its hash.
plain_write! {
    UseJoinTokenRequest => UseJoinTokenResponse, Method::of_joining("Join"),
    use_join_token_command, by [],
    record |it| Record {
        user: format!("join token {}", it.id),
        ..Record::about(&it.request_id, format!("host {}", it.host))
    },
}
