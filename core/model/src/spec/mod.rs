//! Job specifications: task groups, resources, scheduling and lifecycle settings.

mod container;
mod execution;
mod layout;
mod lifecycle;
mod pipeline;
mod submission;
mod texts;
mod validate;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::health::{Phase, PlacementRequest};

pub use container::{Container, GPU_DEVICE, GPU_PLACEHOLDER, Mount, PullPolicy};
pub use execution::{CpuBinding, Execution, Secret, SecretForm, Ulimit, UlimitKind, UnknownUlimit};
pub use layout::{Layout, Packing, Scheduling, Within};
pub use lifecycle::{
    CheckpointPolicy, Condition, Dependency, ExitMatch, ExitMeaning, ExitRule, Lifecycle,
    StopWarning, SuspendMode,
};
pub use pipeline::{Pipeline, PipelineDependency, PipelineJob, validate_pipeline};
pub use submission::check_submission;
pub use texts::TaskWeights;
pub use validate::{Violation, validate};

/// The default queue of jobs that name none; it always exists.
pub const DEFAULT_QUEUE: &str = "default";

/// Default `partition_grace` of restartable single tasks (product contract).
pub const SINGLE_PARTITION_GRACE_MS: u64 = 45_000;
/// Default `partition_grace` of gangs: a control-plane partition must not kill a healthy 1,000-GPU run.
pub const GANG_PARTITION_GRACE_MS: u64 = 300_000;
/// Default grace between the request to stop and the kill of a task.
pub const STOP_GRACE_MS: u64 = 30_000;

/// Specification of a job; immutable once accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Display name; need not be unique.
    pub name: String,
    /// User who submitted it.
    pub user: String,
    /// The queue it waits in; must exist.
    pub queue: String,
    /// Higher values go first; 0 is the default.
    pub priority: i32,
    /// True: all tasks start together or not at all, and are restarted together. False: every task is placed
    /// individually.
    pub gang: bool,
    /// Task groups in rank order; at least one.
    pub groups: Vec<TaskGroup>,
    /// Retries after failures of the job itself.
    pub retry: RetryPolicy,
    /// How long a task may run without contact to any leader, in milliseconds; the leader starts no new
    /// attempt before it is over.
    pub partition_grace_ms: u64,
    /// Milliseconds between the request to stop and the kill of a task.
    pub stop_grace_ms: u64,
    /// User-defined labels.
    pub labels: BTreeMap<String, String>,
    /// Scheduling settings, besides resources.
    pub scheduling: Scheduling,
    /// Lifecycle settings.
    #[serde(default)]
    pub lifecycle: Lifecycle,
}

/// Tasks with the same shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskGroup {
    /// Unique within the job.
    pub name: String,
    /// Number of tasks; at least 1.
    pub count: u32,
    /// Resources of each task.
    pub resources: Resources,
    /// Program and arguments; at least one. In a container, arguments of its entry point; the image's own if
    /// empty.
    pub command: Vec<String>,
    /// Additional environment variables.
    pub environment: BTreeMap<String, String>,
    /// Absolute path; the task's own scratch directory if `None`.
    pub working_directory: Option<String>,
    /// Maximum number of this group's tasks per host (spreads the group); no limit if `None`.
    pub tasks_per_host_max: Option<u32>,
    /// Relative placement of its tasks, and the minimum number of tasks.
    pub layout: Layout,
    /// Execution settings, besides the command.
    #[serde(default)]
    pub execution: Execution,
}

/// Resources of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resources {
    /// Whole GPUs.
    pub gpus: u32,
    /// Acceptable GPU models; empty means any.
    pub gpu_models: Vec<String>,
    /// Thousandths of a CPU.
    pub cpus_milli: u32,
    /// Memory in MiB.
    pub memory_mib: u64,
}

/// Retries after an attempt failed on its own (infrastructure failures never count).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Failures tolerated before the unit fails.
    pub retries_max: u32,
    /// Delay before the first retry in milliseconds, doubled for each further one.
    pub backoff_ms: u64,
}

impl Resources {
    /// Whether a task may run on GPUs of this model.
    #[must_use]
    pub fn accepts_model(&self, model: &str) -> bool {
        self.gpu_models.is_empty() || self.gpu_models.iter().any(|name| name == model)
    }
}

impl JobSpec {
    /// Whether its tasks may be placed on a component in probation: their loss does little harm.
    #[must_use]
    pub fn may_be_lost(&self) -> bool {
        let gpus = self.groups.iter().map(|group| group.resources.gpus);
        Phase::Probation.takes(PlacementRequest {
            is_gang: self.gang && self.tasks() > 1,
            gpus_per_task: gpus.max().unwrap_or(0),
            is_preemptible: self.scheduling.opportunistic,
            has_retry: self.retry.retries_max > 0,
        })
    }

    /// Number of tasks over all groups.
    #[must_use]
    pub fn tasks(&self) -> u64 {
        self.groups.iter().map(|group| u64::from(group.count)).sum()
    }

    /// Number of units placed individually: 1 for a gang, otherwise the number of tasks.
    #[must_use]
    pub fn units(&self) -> u64 {
        if self.gang { 1 } else { self.tasks() }
    }

    /// Group of a task (given by its rank) and its position within the group.
    #[must_use]
    pub fn group_of(&self, task: crate::ids::TaskIndex) -> Option<(&TaskGroup, u32)> {
        let mut position = task.get();
        for group in &self.groups {
            if position < group.count {
                return Some((group, position));
            }
            position -= group.count;
        }
        None
    }
}
