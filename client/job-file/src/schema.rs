//! Schema of a job file.

use std::collections::BTreeMap;

use muster_proto::v1;
use serde::{Deserialize, Serialize};

use crate::execution::ExecutionFile;
use crate::group::{GroupFile, ResourcesFile};
use crate::human::HumanDuration;
use crate::lifecycle::LifecycleFile;
use crate::scheduling::{LayoutFile, SchedulingFile};

/// A job. A job with a single group may write the group's fields (`tasks` for its `count`) at the top level.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JobFile {
    /// Display name; need not be unique.
    pub name: String,
    /// Owner of the job; the user who runs the command if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The queue it waits in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Higher values go first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: i32,
    /// Whether all tasks start together or not at all.
    #[serde(default, skip_serializing_if = "is_false")]
    pub gang: bool,
    /// Free labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Retries after failures of the job itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<RetryFile>,
    /// How long a task may run without contact to any leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_grace: Option<HumanDuration>,
    /// Time between the request to stop and the kill of a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_grace: Option<HumanDuration>,
    /// Scheduling settings, besides resources.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduling: Option<SchedulingFile>,
    /// Lifecycle settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<LifecycleFile>,
    /// In a pipeline file: names of jobs that must have succeeded first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after_ok: Vec<String>,
    /// In a pipeline file: names of jobs that must have ended first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after_any: Vec<String>,
    /// In a pipeline file: names of jobs that must have failed or been cancelled first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after_failed: Vec<String>,
    /// Task groups in rank order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<GroupFile>>,
    /// Of the only group: number of tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<u32>,
    /// Of the only group: resources of each task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesFile>,
    /// Of the only group: program and arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Of the only group: additional environment variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<BTreeMap<String, String>>,
    /// Of the only group: absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// Of the only group: maximum number of tasks per host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks_per_host_max: Option<u32>,
    /// Of the only group: relative placement of its tasks, and the minimum number of tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<LayoutFile>,
    /// Of the only group: execution settings, besides the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<ExecutionFile>,
}

/// Retries after failures of the job itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetryFile {
    /// Failures tolerated before the unit fails.
    #[serde(default)]
    pub retries_max: u32,
    /// Delay before the first retry, doubled for each further one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<HumanDuration>,
}

impl JobFile {
    /// Whether the job uses the short form: its only group's fields at the top level.
    pub fn is_short(&self) -> bool {
        self.groups.is_none()
    }

    /// The first field of the short form that is set, if any.
    pub fn short_field(&self) -> Option<&'static str> {
        let given = [
            ("tasks", self.tasks.is_some()),
            ("resources", self.resources.is_some()),
            ("command", self.command.is_some()),
            ("environment", self.environment.is_some()),
            ("working_directory", self.working_directory.is_some()),
            ("tasks_per_host_max", self.tasks_per_host_max.is_some()),
            ("layout", self.layout.is_some()),
            ("execution", self.execution.is_some()),
        ];
        given
            .iter()
            .find(|(_, given)| *given)
            .map(|(name, _)| *name)
    }

    /// The first field allowed only in pipelines that is set, if any.
    pub fn pipeline_field(&self) -> Option<&'static str> {
        let conditions = [
            ("after_ok", &self.after_ok),
            ("after_any", &self.after_any),
            ("after_failed", &self.after_failed),
        ];
        conditions
            .iter()
            .find(|(_, names)| !names.is_empty())
            .map(|(name, _)| *name)
    }

    /// Converts to the wire format; `user` is the default if the file names none.
    pub fn into_spec(self, user: &str) -> v1::JobSpec {
        let short = GroupFile {
            name: None,
            count: self.tasks,
            resources: self.resources,
            command: self.command.unwrap_or_default(),
            environment: self.environment.unwrap_or_default(),
            working_directory: self.working_directory,
            tasks_per_host_max: self.tasks_per_host_max,
            layout: self.layout,
            execution: self.execution,
        };
        let groups = self.groups.unwrap_or_else(|| vec![short]);
        v1::JobSpec {
            name: self.name,
            user: self.user.unwrap_or_else(|| user.to_owned()),
            queue: self.queue,
            priority: self.priority,
            gang: self.gang,
            groups: groups.into_iter().map(v1::TaskGroup::from).collect(),
            retry: self.retry.map(|retry| v1::RetryPolicy {
                retries_max: retry.retries_max,
                backoff_ms: retry.backoff.map_or(0, |backoff| backoff.ms),
            }),
            partition_grace_ms: self.partition_grace.map(|grace| grace.ms),
            stop_grace_ms: self.stop_grace.map(|grace| grace.ms),
            labels: self.labels,
            scheduling: self.scheduling.map(Into::into),
            lifecycle: self.lifecycle.map(Into::into),
        }
    }
}

impl From<&v1::JobSpec> for JobFile {
    fn from(spec: &v1::JobSpec) -> Self {
        let human = |ms: u64| HumanDuration { ms };
        Self {
            name: spec.name.clone(),
            user: Some(spec.user.clone()),
            queue: spec.queue.clone(),
            priority: spec.priority,
            gang: spec.gang,
            labels: spec.labels.clone(),
            retry: spec.retry.map(|retry| RetryFile {
                retries_max: retry.retries_max,
                backoff: Some(human(retry.backoff_ms)),
            }),
            partition_grace: spec.partition_grace_ms.map(human),
            stop_grace: spec.stop_grace_ms.map(human),
            scheduling: spec.scheduling.as_ref().map(Into::into),
            lifecycle: spec.lifecycle.as_ref().map(Into::into),
            groups: Some(spec.groups.iter().map(GroupFile::from).collect()),
            ..Self::default()
        }
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if hands in a reference"
)]
fn is_zero(value: &i32) -> bool {
    *value == 0
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if hands in a reference"
)]
fn is_false(value: &bool) -> bool {
    !*value
}
