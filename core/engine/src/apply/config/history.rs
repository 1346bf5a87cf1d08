//! Past usage of queues and their users, decayed: updated whenever what they hold changes, so that it can be
//! read at any time.

use std::sync::Arc;

use imbl::OrdMap;
use muster_model::limits;
use muster_model::quota::within;
use muster_model::spec::JobSpec;
use muster_model::time::TimeMs;

use crate::apply::Step;
use crate::state::{History, Queue, QueueUsage};

impl Step<'_> {
    /// Updates the usage of a job's queue, its parent queues and its user up to now; called before what they
    /// hold changes.
    pub(in crate::apply) fn settle_histories(&mut self, spec: &JobSpec) {
        if self.state.history_half_life_ms.is_some() {
            for name in within(&spec.queue) {
                self.settle_history(name);
            }
            self.settle_user(&spec.queue, &spec.user);
        }
    }

    /// Updates the usage of all queues up to now.
    pub(in crate::apply) fn settle_all_histories(&mut self) {
        if self.state.history_half_life_ms.is_some() {
            let names: Vec<Arc<str>> = self.state.queues.keys().cloned().collect();
            for name in names {
                self.settle_history(&name);
            }
        }
    }

    fn settle_history(&mut self, name: &str) {
        let (time, Some(half_life_ms)) = (self.state.time, self.state.history_half_life_ms) else {
            return;
        };
        let usage = self.state.index.usage.get(name);
        let gpus = usage.map_or(0, |usage| usage.total.held.gpus);
        if let Some(queue) = self.state.queues.get_mut(name)
            && queue.history.as_of < time
        {
            let history = queue.history.at(time, gpus, half_life_ms);
            Arc::make_mut(queue).history = history;
        }
    }

    fn settle_user(&mut self, queue: &str, user: &str) {
        let (time, Some(half_life_ms)) = (self.state.time, self.state.history_half_life_ms) else {
            return;
        };
        let usage = self.state.index.usage.get(queue).cloned();
        let Some(queue) = self.state.queues.get_mut(queue) else {
            return;
        };
        if !queue.distinguishes_users() {
            return;
        }
        let queue = Arc::make_mut(queue);
        let history = match queue.user_histories.get(user) {
            Some(known) => known.at(time, gpus_of(usage.as_deref(), user), half_life_ms),
            None => beginning(time),
        };
        queue.user_histories.insert(Arc::from(user), history);
        if queue.user_histories.len() > limits::USER_HISTORIES_MAX {
            forget_least(queue, usage.as_deref(), time, half_life_ms, user);
        }
    }

    /// Starts histories of current holders where users are distinguished from now on; removes the others.
    pub(in crate::apply) fn rebuild_user_histories(&mut self) {
        let (time, half_life_ms) = (self.state.time, self.state.history_half_life_ms);
        let names: Vec<Arc<str>> = self.state.queues.keys().cloned().collect();
        for name in names {
            let usage = self.state.index.usage.get(&name);
            let holding = usage.into_iter().flat_map(|usage| usage.users.keys());
            let Some(queue) = self.state.queues.get_mut(&name) else {
                continue;
            };
            let mut histories = OrdMap::new();
            if half_life_ms.is_some() && queue.distinguishes_users() {
                histories = queue.user_histories.clone();
                for user in holding {
                    histories
                        .entry(Arc::clone(user))
                        .or_insert_with(|| beginning(time));
                }
            }
            if histories != queue.user_histories {
                Arc::make_mut(queue).user_histories = histories;
            }
        }
    }
}

const fn beginning(time: TimeMs) -> History {
    History {
        gpu_ms: 0,
        as_of: time,
    }
}

fn gpus_of(usage: Option<&QueueUsage>, user: &str) -> u64 {
    let of_user = usage.and_then(|usage| usage.users.get(user));
    of_user.map_or(0, |usage| usage.held.gpus)
}

/// Removes half of the users that hold nothing, those with the least usage.
fn forget_least(
    queue: &mut Queue,
    usage: Option<&QueueUsage>,
    time: TimeMs,
    half_life_ms: u64,
    spared: &str,
) {
    let idle = queue.user_histories.iter().filter(|(user, _)| {
        let holds = usage.is_some_and(|usage| usage.users.contains_key(*user));
        !holds && ***user != *spared
    });
    let mut idle: Vec<(u64, Arc<str>)> = idle
        .map(|(user, history)| (history.at(time, 0, half_life_ms).gpu_ms, Arc::clone(user)))
        .collect();
    idle.sort_unstable();
    for (_, user) in idle.iter().take(idle.len().div_ceil(2)) {
        queue.user_histories.remove(user);
    }
}
