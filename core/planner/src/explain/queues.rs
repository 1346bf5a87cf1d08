//! Trial of a changed queue, such as a raised limit, in a fork of the state.

use std::sync::Arc;

use muster_engine::apply::apply;
use muster_engine::state::State;
use muster_model::command::{Command, ConfigCommand};
use muster_model::ids::{RequestId, RequestKey};
use muster_model::quota::{Amounts, Guarantee, Limits, QueueConfig, QueueTree};
use muster_model::time::TimeMs;

use crate::{LimitKind, LimitReached};

/// The state with another configuration of one queue; `None` if `apply` refuses it.
pub(super) fn with_queue(
    state: &State,
    now: TimeMs,
    name: &str,
    change: impl FnOnce(&mut QueueConfig),
) -> Option<State> {
    let live = state.queues.iter().filter(|(_, queue)| !queue.retired);
    let mut tree = QueueTree {
        queues: live
            .map(|(name, queue)| (name.to_string(), QueueConfig::clone(&queue.config)))
            .collect(),
        history_half_life_ms: state.history_half_life_ms,
        defragment: state.defragment,
    };
    change(tree.queues.get_mut(name)?);
    let mut fork = state.clone();
    let configure = Command::Config(ConfigCommand::ConfigureQueues {
        request: RequestKey::of(RequestId(u128::MAX)),
        author: "explain".to_owned(),
        tree: Arc::new(tree),
    });
    apply(&mut fork, now, &configure).result.ok()?;
    Some(fork)
}

/// Raises a limit to the amount that would be used.
pub(super) fn raise(config: &mut QueueConfig, reached: &LimitReached) {
    let to = reached.would_be;
    match reached.kind {
        LimitKind::Queue => raise_limits(&mut config.limit, &reached.resource, to),
        LimitKind::User => raise_limits(&mut config.user_limit, &reached.resource, to),
        LimitKind::Guarantee => {
            if let Guarantee::Amounts(amounts) = &mut config.guarantee {
                raise_amounts(amounts, &reached.resource, to);
            }
        }
    }
}

fn raise_limits(limits: &mut Limits, resource: &str, to: u64) {
    match resource {
        "gpus" => limits.gpus = Some(to),
        "cpus_milli" => limits.cpus_milli = Some(to),
        "memory_mib" => limits.memory_mib = Some(to),
        _ => {
            if let Some(model) = resource.strip_prefix("gpus_by_model.") {
                limits.gpus_by_model.insert(model.to_owned(), to);
            }
        }
    }
}

fn raise_amounts(amounts: &mut Amounts, resource: &str, to: u64) {
    match resource {
        "gpus" => amounts.gpus = to,
        "cpus_milli" => amounts.cpus_milli = to,
        "memory_mib" => amounts.memory_mib = to,
        _ => {
            if let Some(model) = resource.strip_prefix("gpus_by_model.") {
                amounts.gpus_by_model.insert(model.to_owned(), to);
                let of_models: u64 = amounts.gpus_by_model.values().sum();
                amounts.gpus = amounts.gpus.max(of_models);
            }
        }
    }
}
