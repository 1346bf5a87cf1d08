//! Claims: resources reserved for a waiting unit.

use crate::apply::Step;
use crate::command::Claiming;
use crate::ids::{JobId, UnitIndex};
use crate::rejection::Rejection;
use crate::state::Answer;

impl Step<'_> {
    pub(super) fn claim(&mut self, claiming: &Claiming) -> Result<Answer, Rejection> {
        Err(Rejection::ClaimInfeasible {
            job: claiming.job,
            unit: claiming.unit,
            detail: "not built yet".to_owned(),
        })
    }

    pub(super) fn drop_claim(
        &mut self,
        job: JobId,
        unit: UnitIndex,
        _reason: &str,
    ) -> Result<Answer, Rejection> {
        Err(Rejection::NoClaim { job, unit })
    }
}
