//! Queues and their limits.

use std::sync::Arc;

use muster_model::event::EventKind;
use muster_model::ids::RequestKey;
use muster_model::limits;
use muster_model::quota::{self, QueueConfig, QueueTree, parent_of};
use muster_model::rejection::Rejection;

use crate::apply::config::configuration;
use crate::apply::{Step, invalid, require_length};
use crate::state::{Answer, Queue, State};

impl Step<'_> {
    pub(in crate::apply) fn set_queue(
        &mut self,
        request: RequestKey,
        name: &str,
        live_jobs_max: u64,
    ) -> Result<Answer, Rejection> {
        check(name, live_jobs_max)?;
        self.once(request, |step| {
            match step.state.queues.get(name) {
                Some(queue) if queue.retired => step.revive_queue(name, live_jobs_max)?,
                Some(_) => step.limit_queue(name, live_jobs_max),
                None => step.add_queue(name, live_jobs_max)?,
            }
            step.emit(EventKind::QueueSet {
                name: name.to_owned(),
            });
            Ok(Answer::Done)
        })
    }

    fn limit_queue(&mut self, name: &str, live_jobs_max: u64) {
        if let Some(queue) = self.state.queues.get_mut(name).map(Arc::make_mut) {
            Arc::make_mut(&mut queue.config).live_jobs_max = live_jobs_max;
        }
    }

    fn add_queue(&mut self, name: &str, live_jobs_max: u64) -> Result<(), Rejection> {
        if self.state.queues.len() >= limits::QUEUES_MAX {
            return Err(Rejection::ClusterFull {
                what: "queues".to_owned(),
                limit_name: "QUEUES_MAX".to_owned(),
                limit: limits::QUEUES_MAX as u64,
            });
        }
        check_place(self.state, name)?;
        let config = QueueConfig {
            live_jobs_max,
            ..QueueConfig::default()
        };
        let queue = Queue::configured(name, Arc::new(config));
        let name = Arc::clone(&queue.name);
        self.state.queues.insert(name, Arc::new(queue));
        Ok(())
    }

    /// Revives a retired queue, without a guarantee: only the configuration gives guarantees.
    fn revive_queue(&mut self, name: &str, live_jobs_max: u64) -> Result<(), Rejection> {
        check_place(self.state, name)?;
        self.limit_queue(name, live_jobs_max);
        if let Some(queue) = self.state.queues.get_mut(name).map(Arc::make_mut) {
            queue.retired = false;
        }
        let topology = Arc::clone(&self.state.topology);
        self.settle_cells(&topology);
        Ok(())
    }
}

/// Checks that the rules of the tree permit a queue of this name.
fn check_place(state: &State, name: &str) -> Result<(), Rejection> {
    let live = state.queues.values().filter(|queue| !queue.retired);
    let named = live.map(|queue| (queue.name.to_string(), QueueConfig::clone(&queue.config)));
    let mut tree = QueueTree {
        queues: named.collect(),
        ..QueueTree::default()
    };
    tree.queues.insert(name.to_owned(), QueueConfig::default());
    let mut broken = quota::validate(&tree, &state.topology);
    broken.extend(configuration::missing_names(&tree));
    let at = format!("queues.{name}");
    broken.retain(|violation| violation.field == at);
    match parent_of(name) {
        Some(parent) if state.queues.get(parent).is_some_and(|queue| queue.retired) => {
            Err(Rejection::QueueRetired(parent.to_owned()))
        }
        _ if broken.is_empty() => Ok(()),
        _ => Err(Rejection::InvalidConfiguration(broken)),
    }
}

fn check(name: &str, live_jobs_max: u64) -> Result<(), Rejection> {
    if name.is_empty() || name.chars().any(char::is_control) {
        let rule = "must not be empty nor contain control characters";
        return Err(invalid("name", rule.to_owned()));
    }
    require_length("name", name, "NAME_BYTES_MAX", limits::NAME_BYTES_MAX)?;
    if live_jobs_max > limits::LIVE_JOBS_PER_QUEUE_MAX {
        return Err(invalid(
            "live_jobs_max",
            format!(
                "{live_jobs_max} is over the limit of {} (LIVE_JOBS_PER_QUEUE_MAX)",
                limits::LIVE_JOBS_PER_QUEUE_MAX
            ),
        ));
    }
    Ok(())
}
