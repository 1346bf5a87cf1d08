//! What a job asks of the scheduler beside resources: where its tasks lie, what may happen to it.

use serde::{Deserialize, Serialize};

use crate::ids::GpuUuid;

/// A cell that tasks should share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Within {
    /// Level of the cell, one of the topology's: `rack`, `host`, `socket`, ...
    pub level: String,
    /// True: tasks wait until one such cell has room. False: other places are taken where none has.
    pub required: bool,
}

/// Which hosts are preferred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Packing {
    /// As few hosts as possible, the fullest ones first.
    #[default]
    Pack,
    /// As many hosts as possible, the emptiest ones first.
    Spread,
    /// Hosts on which no other job has anything, nor gets anything while the job is there.
    Exclusive,
}

/// What a job asks of the scheduler beside resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scheduling {
    /// True: it takes what is idle, counts on no guarantee, and is the first to go when others need its resources.
    pub opportunistic: bool,
    /// True: when a job of higher priority takes its virtual cluster's cells, it goes on outside of them as
    /// opportunistic work for as long as its resources are not needed, instead of being stopped.
    pub lazy_preemption: bool,
    /// Milliseconds that an attempt may run; it is stopped for good then. Backfill counts on it. No limit if none.
    pub run_time_ms_max: Option<u64>,
    /// Milliseconds within which all members of a gang must run after it was placed; otherwise everything is given
    /// back and it waits again. No limit if none.
    pub assembly_ms_max: Option<u64>,
    /// A cell that all tasks of a gang share.
    pub within: Option<Within>,
    /// Which hosts are preferred.
    pub packing: Packing,
    /// Only on these hosts, by name; anywhere if empty.
    pub hosts: Vec<String>,
    /// Never on these hosts.
    pub hosts_excluded: Vec<String>,
    /// Only in the pinned cell of this name, which must belong to the job's queue.
    pub pinned_cell: Option<String>,
}

/// Where the tasks of a group lie to each other, and how many of them are enough.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Layout {
    /// A gang starts with at least so many tasks of the group, and takes all if there is room; all if none.
    pub count_min: Option<u32>,
    /// A cell that the tasks of the group share, in subgroups if `within_tasks` is given. With a level inside hosts, each
    /// task's own GPUs lie in one such cell.
    pub within: Option<Within>,
    /// Consecutive tasks of a subgroup; the whole group if none.
    pub within_tasks: Option<u32>,
    /// Only on these GPUs; any if empty.
    pub gpus: Vec<GpuUuid>,
}
