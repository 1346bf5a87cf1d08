//! The planner's decision for one unit.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{GpuUuid, HostId, JobId, LeadershipEpoch, TaskIndex, UnitIndex};
use crate::topology::CellId;

/// One unit's allocation: which task runs where on which GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The leader that planned it.
    pub leader: LeadershipEpoch,
    /// Whose unit.
    pub job: JobId,
    /// Which unit.
    pub unit: UnitIndex,
    /// One entry per task of the unit, in task order. A gang whose groups name a `count_min` may come with fewer: the
    /// first so many of each group.
    pub tasks: Arc<[TaskPlacement]>,
    /// On what ground it holds its resources.
    pub standing: Standing,
    /// Whether its tasks wait, prepared, until all of them are. Since command format 4.
    pub barrier: bool,
}

/// On what ground an attempt holds its resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Standing {
    /// By its queue's share: what others may reclaim follows from the queues' guarantees and usage.
    #[default]
    Share,
    /// By the guarantee of its virtual cluster: its GPUs lie in these cells, which are bound to the cluster for as long
    /// as one of its attempts (or claims) needs them. Ascending, disjoint, one per unit of quota.
    Cells(Vec<CellId>),
    /// By nobody's guarantee: it goes when anybody else needs its resources.
    Opportunistic,
}

impl Standing {
    /// Its cells, if it holds resources by those.
    #[must_use]
    pub fn cells(&self) -> Option<&[CellId]> {
        match self {
            Self::Cells(cells) => Some(cells),
            Self::Share | Self::Opportunistic => None,
        }
    }
}

/// Where one task goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPlacement {
    /// The task.
    pub task: TaskIndex,
    /// Its host.
    pub host: HostId,
    /// Its GPUs on that host, ascending by position in the host's list.
    pub gpus: Vec<GpuUuid>,
}
