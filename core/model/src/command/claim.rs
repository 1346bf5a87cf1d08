//! Claims: reservations for waiting units, by waiting for others, by stopping them, or by moving them.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::command::{Standing, TaskPlacement};
use crate::ids::{AttemptEpoch, JobId, LeadershipEpoch, UnitIndex};
use crate::time::TimeMs;

/// A reservation for one waiting unit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claiming {
    /// The leader that planned it.
    pub leader: LeadershipEpoch,
    /// Whose unit.
    pub job: JobId,
    /// Which unit; it keeps waiting until all that it claims is free.
    pub unit: UnitIndex,
    /// Where it will run, in task order. Every GPU is free or held by another attempt.
    pub tasks: Arc<[TaskPlacement]>,
    /// On what ground.
    pub standing: Standing,
    /// Attempts to stop, ascending. Each holds something that is claimed.
    pub victims: Vec<Victim>,
    /// Claims of other units that overlap this one and are given up for it, ascending.
    pub supersedes: Vec<(JobId, UnitIndex)>,
    /// When the resources should be free, in stamped time; none if nobody can tell. Work that ends before may use
    /// them until then.
    pub expected_at: Option<TimeMs>,
    /// Attempts that are moved to make the room; such a claim has no victims and supersedes nothing.
    pub moving: Option<Moving>,
}

/// Moves that make room for a claim in one piece.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moving {
    /// Ascending by attempt. Each holds something that is claimed.
    pub moves: Vec<Move>,
    /// GPU-milliseconds that the claim's unit would wait longer without them, by what the planner expects.
    pub gain_gpu_ms: u64,
}

/// An attempt that is stopped, and the place that is claimed for its unit in the same step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The attempt.
    pub attempt: Victim,
    /// Where its unit goes on, in task order: free, or held by other attempts that this claim moves.
    pub tasks: Arc<[TaskPlacement]>,
}

/// An attempt that a claim stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Victim {
    /// Whose.
    pub job: JobId,
    /// Which unit.
    pub unit: UnitIndex,
    /// Which attempt.
    pub epoch: AttemptEpoch,
}
