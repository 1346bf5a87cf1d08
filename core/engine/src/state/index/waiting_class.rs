//! Waiting classes of jobs: one queue and one placement class, and one user where the queue distinguishes
//! users.

use std::cmp::Reverse;
use std::sync::Arc;

use imbl::OrdMap;
use muster_model::ids::JobId;
use muster_model::quota::{Limits, QueueOrder, within};

use crate::state::{Job, PlacementClass, Queue};

/// Order in which jobs are considered: highest priority first, then oldest. In a FIFO queue all priorities
/// count as 0.
pub type WaitingKey = (Reverse<i32>, JobId);

/// Jobs that find the same room and meet the same limits in a planning round: if one does not fit, none
/// behind it does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WaitingClass {
    /// Their queue.
    pub queue: Arc<str>,
    /// Their user, where the queue is fair among users or has per-user limits; `None` otherwise.
    pub user: Option<Arc<str>>,
    /// Their placement class.
    pub shape: PlacementClass,
}

impl WaitingClass {
    /// Returns the waiting class of a job and its key within the class.
    #[must_use]
    pub fn of(queues: &OrdMap<Arc<str>, Arc<Queue>>, job: &Job) -> (Self, WaitingKey) {
        let name = job.spec.queue.as_str();
        let queue = queues.get(name);
        let order = queue.map_or_else(QueueOrder::default, |queue| queue.config.order);
        let separates_users = order == QueueOrder::Fair || limits_users(queues, name);
        let class = Self {
            queue: queue.map_or_else(|| Arc::from(name), |queue| Arc::clone(&queue.name)),
            user: separates_users.then(|| Arc::from(job.spec.user.as_str())),
            shape: PlacementClass::of(job),
        };
        let priority = match order {
            QueueOrder::Fifo => 0,
            QueueOrder::Priority | QueueOrder::Fair => job.spec.priority,
        };
        (class, (Reverse(priority), job.id))
    }
}

/// Whether a queue or one of its ancestors has per-user limits.
fn limits_users(queues: &OrdMap<Arc<str>, Arc<Queue>>, name: &str) -> bool {
    within(name)
        .filter_map(|name| queues.get(name))
        .any(|queue| queue.config.user_limit != Limits::default())
}
