//! Placement of one unit.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{GpuUuid, HostId, JobId, LeadershipEpoch, TaskIndex, UnitId, UnitIndex};
use crate::topology::CellId;

/// Allocation of one unit: host and GPUs of each task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    /// The leader that planned it.
    pub leader: LeadershipEpoch,
    /// Job of the unit.
    pub job: JobId,
    /// Index of the unit within its job.
    pub unit: UnitIndex,
    /// One entry per task of the unit, in task order. A gang whose groups set a `count_min` may have fewer:
    /// the first tasks of each group.
    pub tasks: Arc<[TaskPlacement]>,
    /// Allocation basis of the attempt.
    pub basis: AllocationBasis,
    /// Whether its tasks wait, prepared, until all of them are.
    pub barrier: bool,
}

impl Placement {
    /// The unit that is placed.
    #[must_use]
    pub const fn unit_id(&self) -> UnitId {
        UnitId::new(self.job, self.unit)
    }
}

/// Allocation basis of an attempt: the right by which it holds its resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AllocationBasis {
    /// Share of its queue: what others may reclaim follows from the queues' guarantees and usage.
    #[default]
    Share,
    /// Guarantee of its virtual cluster: its GPUs are in these cells, which are bound to the virtual cluster
    /// while one of its attempts (or claims) needs them. Ascending, disjoint, one per unit of quota.
    Cells(Vec<CellId>),
    /// Opportunistic, without a guarantee: it is preempted when others need its resources.
    Opportunistic,
}

impl AllocationBasis {
    /// Its cells, if its basis is a virtual cluster's guarantee.
    #[must_use]
    pub fn cells(&self) -> Option<&[CellId]> {
        match self {
            Self::Cells(cells) => Some(cells),
            Self::Share | Self::Opportunistic => None,
        }
    }
}

/// Placement of one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPlacement {
    /// The task.
    pub task: TaskIndex,
    /// The host.
    pub host: HostId,
    /// Its GPUs on that host, ascending by position in the host's list.
    pub gpus: Vec<GpuUuid>,
}
