//! What users ask for: a job, its task groups, their resources and the job's promises about itself.

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

use crate::health::{Phase, Work};

pub use container::{Container, GPU_DEVICE, GPU_PLACEHOLDER, Mount, PullPolicy};
pub use execution::{CpuBinding, Execution, Secret, SecretForm, Ulimit, UlimitKind, UnknownUlimit};
pub use layout::{Layout, Packing, Scheduling, Within};
pub use lifecycle::{
    CheckpointPolicy, Condition, Dependency, ExitMatch, ExitMeaning, ExitRule, Lifecycle,
    StopWarning, SuspendMode,
};
pub use pipeline::{Pipeline, PipelineDependency, PipelineJob, validate_pipeline};
pub use submission::check_submission;
pub use texts::Places;
pub use validate::{Violation, validate};

/// The queue that a job goes to when it names none; it always exists.
pub const DEFAULT_QUEUE: &str = "default";

/// `partition_grace` of restartable single tasks that name none (product contract).
pub const SINGLE_PARTITION_GRACE_MS: u64 = 45_000;
/// `partition_grace` of gangs that name none: a control-plane cut must not kill a healthy 1,000-GPU run.
pub const GANG_PARTITION_GRACE_MS: u64 = 300_000;
/// Grace between asking a task to stop and killing it, where the job names none.
pub const STOP_GRACE_MS: u64 = 30_000;

/// A job as its user described it; immutable once accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// For people; need not be unique.
    pub name: String,
    /// Who submitted it.
    pub user: String,
    /// The queue it waits in; must exist.
    pub queue: String,
    /// Higher goes first; 0 is ordinary.
    pub priority: i32,
    /// True: all tasks start together or not at all, and are restarted together.
    /// False: every task is placed by itself.
    pub gang: bool,
    /// Task groups in rank order; at least one.
    pub groups: Vec<TaskGroup>,
    /// What happens after failures of the job's own.
    pub retry: RetryPolicy,
    /// How long a task may go on without contact to any leader, in milliseconds; the leader starts no
    /// new attempt before it is over.
    pub partition_grace_ms: u64,
    /// Milliseconds between asking a task to stop and killing it.
    pub stop_grace_ms: u64,
    /// Free labels.
    pub labels: BTreeMap<String, String>,
    /// What it asks of the scheduler beside resources.
    pub scheduling: Scheduling,
    /// What it says about its own life.
    #[serde(default)]
    pub lifecycle: Lifecycle,
}

/// Tasks of one shape.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskGroup {
    /// Unique within the job.
    pub name: String,
    /// Number of tasks; at least 1.
    pub count: u32,
    /// What each task needs.
    pub resources: Resources,
    /// Program and arguments; at least one. In a container, arguments of its entry point; the image's own if there are
    /// none.
    pub command: Vec<String>,
    /// Additional environment variables.
    pub environment: BTreeMap<String, String>,
    /// Absolute path; the task's own scratch folder if none.
    pub working_directory: Option<String>,
    /// At most so many tasks of this group on one host (spreads the group); no limit if none.
    pub tasks_per_host_max: Option<u32>,
    /// Where its tasks lie to each other, and how many of them are enough.
    pub layout: Layout,
    /// How its tasks are run, beside their command.
    #[serde(default)]
    pub execution: Execution,
}

/// What one task needs.
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

/// What happens after an attempt failed by the job's own doing (infrastructure never counts).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Failures forgiven before the unit is failed.
    pub retries_max: u32,
    /// Wait before the first retry, doubled for every further one, in milliseconds.
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
    /// Whether a place that has to prove itself may have its tasks: they can be lost without much harm.
    #[must_use]
    pub fn may_be_lost(&self) -> bool {
        let gpus = self.groups.iter().map(|group| group.resources.gpus);
        Phase::Probation.takes(Work {
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

    /// Number of units that are placed one by one: 1 for a gang, else the number of tasks.
    #[must_use]
    pub fn units(&self) -> u64 {
        if self.gang { 1 } else { self.tasks() }
    }

    /// The group that a task (its index in rank order) belongs to, and its position within the group.
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
