//! Claims: reservations for waiting units, fulfilled by waiting for, preempting or moving other attempts.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::command::{AllocationBasis, TaskPlacement};
use crate::ids::{AttemptEpoch, JobId, LeadershipEpoch, UnitId, UnitIndex};
use crate::time::TimeMs;

/// A reservation for one waiting unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClaimSpec {
    /// The leader that planned it.
    pub leader: LeadershipEpoch,
    /// Job of the unit.
    pub job: JobId,
    /// Index of the unit within its job; it keeps waiting until everything claimed is free.
    pub unit: UnitIndex,
    /// Planned placement in task order. Every GPU is free or held by another attempt.
    pub tasks: Arc<[TaskPlacement]>,
    /// Allocation basis (guaranteed share, cells, opportunistic).
    pub basis: AllocationBasis,
    /// Attempts to stop, ascending. Each holds something that is claimed.
    pub victims: Vec<Victim>,
    /// Overlapping claims of other units that this claim replaces, ascending.
    pub supersedes: Vec<UnitId>,
    /// Expected time at which the resources are free, in stamped time; `None` if unknown. Backfill may use
    /// them until then.
    pub expected_at: Option<TimeMs>,
    /// Attempts that are moved to make room; such a claim has no victims and supersedes nothing.
    pub moving: Option<Moving>,
}

/// Moves that make contiguous room for a claim.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moving {
    /// Ascending by attempt. Each holds something that is claimed.
    pub moves: Vec<Move>,
    /// GPU-milliseconds that the claim's unit would wait longer without the moves, as the planner expects.
    pub gain_gpu_ms: u64,
}

/// An attempt that is stopped, and the placement claimed for its unit in the same step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The attempt.
    pub attempt: Victim,
    /// Placement of the moved unit in task order: free, or held by other attempts that this claim moves.
    pub tasks: Arc<[TaskPlacement]>,
}

/// An attempt that a claim stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Victim {
    /// The job.
    pub job: JobId,
    /// Index of the unit within its job.
    pub unit: UnitIndex,
    /// Epoch of the attempt.
    pub epoch: AttemptEpoch,
}

impl ClaimSpec {
    /// The unit that claims.
    #[must_use]
    pub const fn unit_id(&self) -> UnitId {
        UnitId::new(self.job, self.unit)
    }
}

impl Victim {
    /// The unit whose attempt is stopped.
    #[must_use]
    pub const fn unit_id(&self) -> UnitId {
        UnitId::new(self.job, self.unit)
    }
}
