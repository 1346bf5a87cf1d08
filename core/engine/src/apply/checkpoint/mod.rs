//! Checkpoints: commits, retention and removal.

pub(super) mod checkpoints;
pub(super) mod retention;

use muster_model::command::CheckpointCommand;
use muster_model::rejection::Rejection;

use crate::apply::Step;
use crate::apply::checkpoint::checkpoints::Damage;
use crate::state::Answer;

impl Step<'_> {
    pub(super) fn checkpoint(&mut self, command: &CheckpointCommand) -> Result<Answer, Rejection> {
        match command {
            CheckpointCommand::CommitCheckpoint {
                job,
                unit,
                checkpoint,
                ..
            } => self.commit_checkpoint(*job, *unit, checkpoint),
            CheckpointCommand::MarkCheckpointDamaged {
                job,
                unit,
                reporter,
                epoch,
                step,
                reason,
                ..
            } => self.mark_checkpoint_damaged(&Damage {
                job: *job,
                unit: *unit,
                reporter: *reporter,
                epoch: *epoch,
                step: *step,
                reason,
            }),
        }
    }
}
