//! Past usage of users, in a queue with fair ordering.

use std::sync::Arc;

use muster_engine::state::{History, Queue, State};
use muster_model::quota::{QueueConfig, QueueOrder};
use muster_model::time::TimeMs;

/// The first version's state with a fair queue that has a usage history of two users.
pub(crate) fn state() -> State {
    let mut parts = super::state::parts();
    parts.history_half_life_ms = Some(86_400_000);
    let fair = QueueConfig {
        order: QueueOrder::Fair,
        ..QueueConfig::default()
    };
    let histories = [("ada", 900_000, 4_700), ("résumé", u64::MAX, 0)];
    let histories = histories.map(|(user, gpu_ms, as_of_ms)| {
        let history = History {
            gpu_ms,
            as_of: TimeMs(as_of_ms),
        };
        (Arc::from(user), history)
    });
    parts.queues.push(Queue {
        history: History {
            gpu_ms: 1_200_000,
            as_of: TimeMs(4_700),
        },
        user_histories: histories.into_iter().collect(),
        ..Queue::configured("vision", Arc::new(fair))
    });
    State::restore(parts)
}
