//! Changes of queues.

use muster_engine::effects::queue_effects;
use muster_engine::state::State;
use muster_model::access::Role;
use muster_proto::convert::{configure_queues_command, set_queue_command};
use muster_proto::v1;

use crate::audit_log::Record;
use crate::service::gate::Method;
use crate::service::write::request::{configuration_write, plain_write};
use crate::view::effect_to_wire;

plain_write! {
    SetQueueRequest => SetQueueResponse, Method::of_admin("SetQueue", Role::Admin),
    set_queue_command, by [],
    record |it| Record::about(&it.request_id, format!("queue {}", it.name)),
}

configuration_write! {
    ConfigureQueuesRequest => ConfigureQueuesResponse, Method::of_admin("ConfigureQueues", Role::Admin),
    configure_queues_command, "queues", effect
}

/// Effect of a new queue tree on the queues.
fn effect(before: &State, after: &State) -> v1::ConfigureQueuesResponse {
    let changes = queue_effects(before, after).into_iter();
    v1::ConfigureQueuesResponse {
        revision: 0,
        changes: changes.map(effect_to_wire).collect(),
    }
}
