//! Queues.

use std::sync::Arc;

use muster_engine::state::{History, Queue};
use muster_model::quota::QueueConfig;
use muster_model::time::TimeMs;

use crate::error::Field;
use crate::v1;

fn has_default_config(queue: &Queue) -> bool {
    *queue.config == default_config(queue.config.live_jobs_max)
}

fn default_config(live_jobs_max: u64) -> QueueConfig {
    QueueConfig {
        live_jobs_max,
        ..QueueConfig::default()
    }
}

pub(super) fn to_wire(queue: &Queue) -> v1::Queue {
    v1::Queue {
        name: queue.name.to_string(),
        live_jobs_max: queue.config.live_jobs_max,
        live_jobs: queue.live_jobs,
        config: (!has_default_config(queue)).then(|| queue.config.as_ref().into()),
        retired: queue.retired,
        history_gpu_ms: queue.history.gpu_ms,
        history_as_of_ms: queue.history.as_of.0,
        user_histories: queue.user_histories.iter().map(user_to_wire).collect(),
    }
}

fn user_to_wire((user, history): (&Arc<str>, &History)) -> v1::UserHistory {
    v1::UserHistory {
        user: user.to_string(),
        gpu_ms: history.gpu_ms,
        as_of_ms: history.as_of.0,
    }
}

fn user_from_wire(wire: v1::UserHistory) -> (Arc<str>, History) {
    let history = History {
        gpu_ms: wire.gpu_ms,
        as_of: TimeMs(wire.as_of_ms),
    };
    (wire.user.into(), history)
}

pub(super) fn from_wire(wire: v1::Queue) -> Field<Queue> {
    let config = match wire.config {
        Some(config) => {
            QueueConfig::try_from(config).map_err(|invalid| invalid.within("queue.config"))?
        }
        None => default_config(wire.live_jobs_max),
    };
    Ok(Queue {
        name: wire.name.into(),
        config: Arc::new(config),
        retired: wire.retired,
        live_jobs: wire.live_jobs,
        history: History {
            gpu_ms: wire.history_gpu_ms,
            as_of: TimeMs(wire.history_as_of_ms),
        },
        user_histories: wire
            .user_histories
            .into_iter()
            .map(user_from_wire)
            .collect(),
    })
}
