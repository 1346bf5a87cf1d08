//! The planner's decision for one member of a running gang.

use serde::{Deserialize, Serialize};

use crate::command::TaskPlacement;
use crate::ids::{AttemptEpoch, JobId, LeadershipEpoch, UnitIndex};

/// Who takes a vacant place in a gang that goes on: its revision is the new member's epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberSwap {
    /// The leader that planned it.
    pub leader: LeadershipEpoch,
    /// Whose gang.
    pub job: JobId,
    /// Which unit.
    pub unit: UnitIndex,
    /// Its attempt; an older epoch is refused.
    pub epoch: AttemptEpoch,
    /// Where the new member runs; its task is the one whose place is vacant.
    pub task: TaskPlacement,
}
