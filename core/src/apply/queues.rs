//! Queues and their limits.

use std::sync::Arc;

use crate::apply::fingerprint::Request;
use crate::apply::{Step, invalid, require_length};
use crate::event::EventKind;
use crate::ids::RequestId;
use crate::limits;
use crate::quota::QueueConfig;
use crate::rejection::Rejection;
use crate::state::{Answer, Queue};

impl Step<'_> {
    pub(super) fn set_queue(
        &mut self,
        request: RequestId,
        name: &str,
        live_jobs_max: u64,
    ) -> Result<Answer, Rejection> {
        check(name, live_jobs_max)?;
        self.once(request, &Request::SetQueue(name, live_jobs_max), |step| {
            let queues = &mut step.state.queues;
            if let Some(queue) = queues.get_mut(name) {
                Arc::make_mut(&mut Arc::make_mut(queue).config).live_jobs_max = live_jobs_max;
            } else if queues.len() < limits::QUEUES_MAX {
                let config = QueueConfig {
                    live_jobs_max,
                    ..QueueConfig::default()
                };
                let queue = Queue::configured(name, Arc::new(config));
                queues.insert(Arc::clone(&queue.name), Arc::new(queue));
            } else {
                return Err(Rejection::ClusterFull {
                    what: "queues".to_owned(),
                    limit_name: "QUEUES_MAX".to_owned(),
                    limit: limits::QUEUES_MAX as u64,
                });
            }
            step.emit(EventKind::QueueSet {
                name: name.to_owned(),
            });
            Ok(Answer::Done)
        })
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
