//! Draws of replacement members for gangs with a vacant place.

use muster_model::command::{Command, MemberSwap};
use muster_model::ids::{AttemptEpoch, UnitId};

use crate::draw::Draw;

impl Draw<'_> {
    /// Mostly a fitting member of the right gang; `None` if no gang has a vacant place.
    pub(super) fn swap(&mut self) -> Option<Command> {
        let vacant: Vec<_> = self.state.index.vacant.iter().copied().collect();
        if vacant.is_empty() || self.once_in(4) {
            return None;
        }
        let gang = self.pick(vacant)?;
        let UnitId { job, unit } = gang;
        let attempt = self.state.attempt(gang)?;
        let lacks = attempt.vacancy()?.run.task;
        let mut tasks = self.tasks_of(job, unit);
        if !self.once_in(10) {
            tasks.retain(|task| task.task == lacks);
        }
        let stale = u64::from(self.once_in(20));
        Some(Command::SwapMember(MemberSwap {
            leader: self.leader(),
            job,
            unit,
            epoch: AttemptEpoch(attempt.epoch.get().saturating_sub(stale)),
            task: self.pick(tasks)?,
        }))
    }
}
