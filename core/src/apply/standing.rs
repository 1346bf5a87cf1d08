//! On what ground attempts hold their resources.

use crate::apply::Step;
use crate::command::Standing;
use crate::ids::{AttemptEpoch, JobId, UnitIndex};
use crate::rejection::Rejection;
use crate::state::Answer;

impl Step<'_> {
    pub(super) fn set_standing(
        &mut self,
        id: JobId,
        unit: UnitIndex,
        epoch: AttemptEpoch,
        _standing: &Standing,
    ) -> Result<Answer, Rejection> {
        self.current_attempt(id, unit, epoch)?;
        Ok(Answer::Done)
    }
}
