//! Queues and their usage.

use std::cmp::Reverse;
use std::sync::Arc;

use muster_engine::state::{Queue, QueueUsage, State, Usage};
use muster_proto::v1;

/// Most users listed with a queue.
const USERS_LISTED_MAX: usize = 100;

/// A queue with its usage and that of its users.
pub(crate) fn queue_to_wire(state: &State, queue: &Queue) -> v1::Queue {
    let usage = state.index.usage.get(&queue.name);
    v1::Queue {
        name: queue.name.to_string(),
        live_jobs_max: queue.config.live_jobs_max,
        live_jobs: queue.live_jobs,
        config: Some(queue.config.as_ref().into()),
        retired: queue.retired,
        usage: Some(usage.map_or_else(Default::default, |usage| usage_to_wire(&usage.total))),
        users: usage.map_or_else(Vec::new, |usage| users_to_wire(usage)),
        history_gpu_ms: queue.history.gpu_ms,
    }
}

fn users_to_wire(usage: &QueueUsage) -> Vec<v1::UserUsage> {
    let mut users: Vec<_> = usage.users.iter().collect();
    users.sort_by_key(|(name, usage)| (Reverse(usage.held.gpus), Arc::clone(name)));
    let users = users.into_iter().take(USERS_LISTED_MAX);
    users
        .map(|(name, usage)| v1::UserUsage {
            user: name.to_string(),
            usage: Some(usage_to_wire(usage)),
        })
        .collect()
}

fn usage_to_wire(usage: &Usage) -> v1::Usage {
    v1::Usage {
        held: Some((&usage.held).into()),
        opportunistic: Some((&usage.opportunistic).into()),
        claimed: Some((&usage.claimed).into()),
    }
}
