//! The task group section of a job file.

use std::collections::BTreeMap;

use muster_proto::v1;
use serde::{Deserialize, Serialize};

use crate::execution::ExecutionFile;
use crate::human::{CpuCount, HumanSize};
use crate::scheduling::LayoutFile;

/// Tasks with the same shape.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupFile {
    /// Unique within the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Number of tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// Resources of each task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourcesFile>,
    /// Program and arguments; optional for container tasks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Additional environment variables.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Absolute path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// Maximum number of this group's tasks per host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks_per_host_max: Option<u32>,
    /// Relative placement of the group's tasks, and the minimum number of tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub layout: Option<LayoutFile>,
    /// Execution settings of the group's tasks, besides their command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<ExecutionFile>,
}

/// Resources of one task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourcesFile {
    /// Whole GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<u32>,
    /// Acceptable GPU models; any if none is given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_models: Vec<String>,
    /// CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuCount>,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<HumanSize>,
}

impl From<GroupFile> for v1::TaskGroup {
    fn from(group: GroupFile) -> Self {
        Self {
            name: group.name,
            count: group.count,
            resources: group.resources.map(v1::Resources::from),
            command: group.command,
            environment: group.environment,
            working_directory: group.working_directory,
            tasks_per_host_max: group.tasks_per_host_max,
            layout: group.layout.map(Into::into),
            execution: group.execution.map(Into::into),
        }
    }
}

impl From<ResourcesFile> for v1::Resources {
    fn from(resources: ResourcesFile) -> Self {
        Self {
            gpus: resources.gpus.unwrap_or_default(),
            gpu_models: resources.gpu_models,
            cpus_milli: resources.cpus.map_or(0, |cpus| cpus.milli),
            memory_mib: resources.memory.map_or(0, |memory| memory.mib),
        }
    }
}

impl From<&v1::TaskGroup> for GroupFile {
    fn from(group: &v1::TaskGroup) -> Self {
        Self {
            name: group.name.clone(),
            count: group.count,
            resources: group.resources.as_ref().map(ResourcesFile::from),
            command: group.command.clone(),
            environment: group.environment.clone(),
            working_directory: group.working_directory.clone(),
            tasks_per_host_max: group.tasks_per_host_max,
            layout: group.layout.as_ref().map(Into::into),
            execution: group.execution.as_ref().map(Into::into),
        }
    }
}

impl From<&v1::Resources> for ResourcesFile {
    fn from(resources: &v1::Resources) -> Self {
        let given = |amount: u64| amount > 0;
        Self {
            gpus: given(resources.gpus.into()).then_some(resources.gpus),
            gpu_models: resources.gpu_models.clone(),
            cpus: given(resources.cpus_milli.into()).then_some(CpuCount {
                milli: resources.cpus_milli,
            }),
            memory: given(resources.memory_mib).then_some(HumanSize {
                mib: resources.memory_mib,
            }),
        }
    }
}
