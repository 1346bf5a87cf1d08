//! Units with their current attempts, which most decisions about running work need together.

use muster_model::command::Victim;
use muster_model::ids::{UnitId, UnitIndex};

use crate::state::{Attempt, Job, State, Unit};

/// A unit that has an attempt: from its placement until it has released everything.
#[derive(Clone, Copy, Debug)]
pub struct Running<'a> {
    /// The owning job.
    pub job: &'a Job,
    /// Index of the unit within its job.
    pub index: UnitIndex,
    /// The unit's record.
    pub unit: &'a Unit,
    /// The unit's current attempt.
    pub attempt: &'a Attempt,
}

impl<'a> Running<'a> {
    /// Returns a unit with its attempt; `None` if it has none.
    #[must_use]
    pub fn of(state: &'a State, id: UnitId) -> Option<Self> {
        let job = state.job(id.job)?;
        let unit = job.unit(id.unit)?;
        Some(Self {
            job,
            index: id.unit,
            unit,
            attempt: unit.attempt.as_deref()?,
        })
    }

    /// Returns the id of the unit.
    #[must_use]
    pub const fn unit_id(&self) -> UnitId {
        UnitId::new(self.job.id, self.index)
    }

    /// Returns the attempt as commands name it, which is also how preemption names its victims.
    #[must_use]
    pub const fn as_victim(&self) -> Victim {
        Victim {
            job: self.job.id,
            unit: self.index,
            epoch: self.attempt.epoch,
        }
    }
}
