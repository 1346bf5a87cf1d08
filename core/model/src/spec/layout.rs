//! Scheduling constraints and preferences of a job, besides its resources.

use serde::{Deserialize, Serialize};

use crate::ids::GpuUuid;

/// A cell that tasks should share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Within {
    /// Level of the cell, one of the topology's: `rack`, `host`, `socket`, ...
    pub level: String,
    /// True: tasks wait until one such cell has room. False: other placements are used if no cell has room.
    pub required: bool,
}

/// Host preference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Packing {
    /// As few hosts as possible, the fullest first.
    #[default]
    Pack,
    /// As many hosts as possible, the emptiest first.
    Spread,
    /// Only hosts without allocations of other jobs, which stay exclusive while the job is there.
    Exclusive,
}

/// Scheduling settings of a job, besides its resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduling {
    /// True: it uses idle resources without a guarantee and is preempted first when others need them.
    pub opportunistic: bool,
    /// True: when a job of higher priority takes its virtual cluster's cells, it continues outside of them as
    /// opportunistic work while its resources are not needed, instead of being stopped.
    pub lazy_preemption: bool,
    /// Run time limit of an attempt in milliseconds; it is then stopped permanently. Backfill relies on it.
    /// No limit if `None`.
    pub run_time_ms_max: Option<u64>,
    /// Milliseconds from placement within which all members of a gang must run; otherwise everything is
    /// released and it waits again. No limit if `None`.
    pub assembly_ms_max: Option<u64>,
    /// A cell that contains all tasks of a gang.
    pub within: Option<Within>,
    /// Host preference.
    pub packing: Packing,
    /// Allowed hosts by name; all if empty.
    pub hosts: Vec<String>,
    /// Excluded hosts by name.
    pub hosts_excluded: Vec<String>,
    /// Restricts placement to the pinned cell of this name, which must belong to the job's queue.
    pub pinned_cell: Option<String>,
}

/// Relative placement of a group's tasks, and the minimum number of tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Layout {
    /// Minimum number of the group's tasks with which a gang starts; it starts with all if there is room. All
    /// if `None`.
    pub count_min: Option<u32>,
    /// A cell that contains the tasks of the group, by subgroup if `within_tasks` is set. For a level inside
    /// hosts, each task's own GPUs are in one such cell.
    pub within: Option<Within>,
    /// Number of consecutive tasks in a subgroup; the whole group if `None`.
    pub within_tasks: Option<u32>,
    /// Allowed GPUs; all if empty.
    pub gpus: Vec<GpuUuid>,
}
