//! Placement of one member of a running gang.

use serde::{Deserialize, Serialize};

use crate::command::TaskPlacement;
use crate::ids::{AttemptEpoch, JobId, LeadershipEpoch, UnitId, UnitIndex};

/// Replacement of a lost member of a running gang: the command's revision is the new member's epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberSwap {
    /// The leader that planned it.
    pub leader: LeadershipEpoch,
    /// Job of the gang.
    pub job: JobId,
    /// Index of the unit within its job.
    pub unit: UnitIndex,
    /// Epoch of the attempt; an older epoch is rejected.
    pub epoch: AttemptEpoch,
    /// Placement of the new member; its task is the vacant one.
    pub task: TaskPlacement,
}

impl MemberSwap {
    /// The gang's unit.
    #[must_use]
    pub const fn unit_id(&self) -> UnitId {
        UnitId::new(self.job, self.unit)
    }
}
