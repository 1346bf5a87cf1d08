//! The scheduling section of a job file.

use muster_proto::v1;
use serde::{Deserialize, Serialize};

use crate::human::HumanDuration;

/// Scheduling settings of a job, besides its resources.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SchedulingFile {
    /// Runs on idle resources without a guarantee and is preempted first.
    #[serde(skip_serializing_if = "is_false")]
    pub opportunistic: bool,
    /// Continues as opportunistic work when its cells are reclaimed.
    #[serde(skip_serializing_if = "is_false")]
    pub lazy_preemption: bool,
    /// Maximum run time of an attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_time_max: Option<HumanDuration>,
    /// Time within which all members of a gang must run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assembly_max: Option<HumanDuration>,
    /// A cell that contains all tasks of a gang.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<WithinFile>,
    /// Host preference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packing: Option<PackingFile>,
    /// Allowed hosts; all if empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Excluded hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts_excluded: Vec<String>,
    /// Restricts placement to the pinned cell of this name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned_cell: Option<String>,
}

/// Relative placement of a group's tasks, and the minimum number of tasks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LayoutFile {
    /// Minimum number of the group's tasks with which a gang starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count_min: Option<u32>,
    /// A cell that contains the tasks of the group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within: Option<WithinFile>,
    /// Number of consecutive tasks in a subgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub within_tasks: Option<u32>,
    /// Restricts placement to these GPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<String>,
}

/// A cell that tasks should share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WithinFile {
    /// Level of the cell.
    pub level: String,
    /// Whether tasks wait until one such cell has capacity.
    #[serde(default = "yes")]
    pub required: bool,
}

/// Host preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "lowercase")]
pub enum PackingFile {
    /// As few hosts as possible, the fullest first.
    Pack,
    /// As many hosts as possible, the emptiest first.
    Spread,
    /// Only hosts without allocations of other jobs.
    Exclusive,
}

impl From<SchedulingFile> for v1::Scheduling {
    fn from(file: SchedulingFile) -> Self {
        let packing = file.packing.map_or(v1::Packing::Unspecified, Into::into);
        Self {
            opportunistic: file.opportunistic,
            lazy_preemption: file.lazy_preemption,
            run_time_ms_max: file.run_time_max.map(|time| time.ms),
            assembly_ms_max: file.assembly_max.map(|time| time.ms),
            within: file.within.map(Into::into),
            packing: packing.into(),
            hosts: file.hosts,
            hosts_excluded: file.hosts_excluded,
            pinned_cell: file.pinned_cell,
        }
    }
}

impl From<&v1::Scheduling> for SchedulingFile {
    fn from(wire: &v1::Scheduling) -> Self {
        let human = |ms: u64| HumanDuration { ms };
        Self {
            opportunistic: wire.opportunistic,
            lazy_preemption: wire.lazy_preemption,
            run_time_max: wire.run_time_ms_max.map(human),
            assembly_max: wire.assembly_ms_max.map(human),
            within: wire.within.as_ref().map(Into::into),
            packing: match wire.packing() {
                v1::Packing::Unspecified => None,
                v1::Packing::Pack => Some(PackingFile::Pack),
                v1::Packing::Spread => Some(PackingFile::Spread),
                v1::Packing::Exclusive => Some(PackingFile::Exclusive),
            },
            hosts: wire.hosts.clone(),
            hosts_excluded: wire.hosts_excluded.clone(),
            pinned_cell: wire.pinned_cell.clone(),
        }
    }
}

impl From<LayoutFile> for v1::Layout {
    fn from(file: LayoutFile) -> Self {
        Self {
            count_min: file.count_min,
            within: file.within.map(Into::into),
            within_tasks: file.within_tasks,
            gpus: file.gpus,
        }
    }
}

impl From<&v1::Layout> for LayoutFile {
    fn from(wire: &v1::Layout) -> Self {
        Self {
            count_min: wire.count_min,
            within: wire.within.as_ref().map(Into::into),
            within_tasks: wire.within_tasks,
            gpus: wire.gpus.clone(),
        }
    }
}

impl From<WithinFile> for v1::Within {
    fn from(file: WithinFile) -> Self {
        Self {
            level: file.level,
            required: Some(file.required),
        }
    }
}

impl From<&v1::Within> for WithinFile {
    fn from(wire: &v1::Within) -> Self {
        Self {
            level: wire.level.clone(),
            required: wire.required.unwrap_or(true),
        }
    }
}

impl From<PackingFile> for v1::Packing {
    fn from(packing: PackingFile) -> Self {
        match packing {
            PackingFile::Pack => Self::Pack,
            PackingFile::Spread => Self::Spread,
            PackingFile::Exclusive => Self::Exclusive,
        }
    }
}

fn yes() -> bool {
    true
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if hands in a reference"
)]
fn is_false(value: &bool) -> bool {
    !*value
}
