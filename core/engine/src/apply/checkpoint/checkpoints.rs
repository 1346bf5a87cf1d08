//! Checkpoints committed by tasks; only the current attempt may commit.

use std::sync::Arc;

use muster_model::command::CheckpointCommit;
use muster_model::event::EventKind;
use muster_model::ids::{AttemptEpoch, JobId, UnitId, UnitIndex};
use muster_model::job::Checkpoint;
use muster_model::limits;
use muster_model::rejection::Rejection;

use crate::apply::checkpoint::retention::{self, Forgotten};
use crate::apply::{Step, invalid, require_length};
use crate::state::{Answer, Job, Unit};

impl Step<'_> {
    pub(in crate::apply) fn commit_checkpoint(
        &mut self,
        job: JobId,
        unit: UnitIndex,
        commit: &CheckpointCommit,
    ) -> Result<Answer, Rejection> {
        let id = UnitId::new(job, unit);
        let (job, epoch) = self.attempt_of_committer(id, commit.epoch)?;
        check(commit)?;
        // All members of an attempt, including replacements, write one sequence of checkpoints.
        let commit = &CheckpointCommit {
            epoch,
            ..commit.clone()
        };
        let newest = job.unit(unit).and_then(|known| newest_of(known, commit));
        if let Some(newest) = newest {
            if newest.step == commit.step && newest.path == commit.path {
                return Ok(Answer::Done);
            }
            if newest.step >= commit.step {
                return Err(Rejection::CheckpointOutOfOrder {
                    job: id.job,
                    given: commit.step,
                    current: newest.step,
                });
            }
        }
        let committed_at = self.state.time;
        let checkpoint = Checkpoint {
            epoch: commit.epoch,
            step: commit.step,
            path: commit.path.clone(),
            size_bytes: commit.size_bytes,
            digest: commit.digest.clone(),
            committed_at,
            save_ms: commit.save_ms,
            damaged: None,
            damaged_by: None,
        };
        let policy = job.spec.lifecycle.checkpoints;
        let forgotten = self.edit_attempt(id, |known| {
            known.checkpoints.push(checkpoint);
            reset_consecutive_swaps(known);
            let forgotten = policy.map(|policy| retention::retain(known, policy));
            if known.checkpoints.len() > limits::CHECKPOINTS_PER_JOB_MAX {
                known.checkpoints.remove(0);
            }
            forgotten.unwrap_or_default()
        });
        self.emit(EventKind::CheckpointCommitted {
            job: id.job,
            unit,
            epoch: commit.epoch,
            step: commit.step,
            path: commit.path.clone(),
            size_bytes: commit.size_bytes,
        });
        self.emit_forgotten_checkpoints(id, forgotten);
        self.leave_draining_components(id);
        Ok(Answer::Done)
    }

    /// Returns the attempt for which the member with this epoch may commit: it must be a current member.
    fn attempt_of_committer(
        &self,
        id: UnitId,
        epoch: AttemptEpoch,
    ) -> Result<(&Job, AttemptEpoch), Rejection> {
        let UnitId { job, unit } = id;
        let known = self.known_job(job)?;
        if !known.has_unit(unit) {
            return Err(Rejection::UnknownUnit { job, unit });
        }
        let attempt = self.state.attempt(id);
        let attempt = attempt.filter(|attempt| attempt.has_member_of(epoch));
        let given = epoch;
        let stale = Rejection::StaleAttempt { job, unit, given };
        Ok((known, attempt.ok_or(stale)?.epoch))
    }

    /// Records checkpoints that are no longer kept; a worker is ordered to remove their folders.
    fn emit_forgotten_checkpoints(&mut self, id: UnitId, forgotten: Forgotten) {
        let first = self.attempt_mut(id).tasks.first();
        let host = first.map(|run| run.host);
        if let Some(host) = host.filter(|_| !forgotten.removed.is_empty()) {
            self.touch_desired(host);
        }
        for (steps, removed) in [(forgotten.removed, true), (forgotten.left, false)] {
            if !steps.is_empty() {
                self.emit(EventKind::CheckpointsForgotten {
                    job: id.job,
                    unit: id.unit,
                    steps,
                    removed,
                });
            }
        }
    }
}

impl Step<'_> {
    /// Marks a checkpoint that the unit's current attempt could not read. A repetition changes nothing.
    pub(in crate::apply) fn mark_checkpoint_damaged(
        &mut self,
        damage: &Damage<'_>,
    ) -> Result<Answer, Rejection> {
        let Damage {
            job,
            unit,
            reporter,
            epoch,
            step,
            reason,
        } = *damage;
        let id = UnitId::new(job, unit);
        self.current_attempt(id, reporter)?;
        require_length("reason", reason, "TEXT_BYTES_MAX", limits::TEXT_BYTES_MAX)?;
        let is_named =
            |checkpoint: &Checkpoint| (checkpoint.epoch, checkpoint.step) == (epoch, step);
        let known = self.state.unit(id);
        let checkpoint = known.and_then(|known| known.checkpoints.iter().find(|it| is_named(it)));
        match checkpoint {
            None => {
                return Err(Rejection::UnknownCheckpoint { job, epoch, step });
            }
            Some(checkpoint) if checkpoint.damaged.is_some() => return Ok(Answer::Done),
            Some(_) => {}
        }
        self.edit_attempt(id, |known| {
            for checkpoint in known.checkpoints.iter_mut().filter(|it| is_named(it)) {
                checkpoint.damaged = Some(reason.to_owned());
                checkpoint.damaged_by = Some(reporter);
            }
            retention::spare_reusable_folders(known);
        });
        self.emit(EventKind::CheckpointDamaged {
            job,
            unit,
            epoch,
            step,
            reason: reason.to_owned(),
        });
        Ok(Answer::Done)
    }
}

/// Resets the consecutive swaps: a gang that saved something newer makes progress.
fn reset_consecutive_swaps(unit: &mut Unit) {
    let has_swaps = unit.attempt.as_deref().is_some_and(|attempt| {
        let membership = attempt.membership.as_deref();
        membership.is_some_and(|membership| membership.swaps_in_a_row > 0)
    });
    if let Some(attempt) = unit.attempt.as_mut().filter(|_| has_swaps)
        && let Some(membership) = &mut Arc::make_mut(attempt).membership
    {
        membership.swaps_in_a_row = 0;
    }
}

/// Arguments of [`muster_model::command::CheckpointCommand::MarkCheckpointDamaged`].
pub(in crate::apply) struct Damage<'a> {
    pub(in crate::apply) job: JobId,
    pub(in crate::apply) unit: UnitIndex,
    pub(in crate::apply) reporter: AttemptEpoch,
    pub(in crate::apply) epoch: AttemptEpoch,
    pub(in crate::apply) step: u64,
    pub(in crate::apply) reason: &'a str,
}

/// Returns the newest checkpoint that the same attempt committed.
fn newest_of<'a>(unit: &'a Unit, commit: &CheckpointCommit) -> Option<&'a Checkpoint> {
    let newest = unit.checkpoints.last()?;
    (newest.epoch == commit.epoch).then_some(newest)
}

fn check(commit: &CheckpointCommit) -> Result<(), Rejection> {
    if !commit.path.starts_with('/') || commit.path.contains('\0') {
        return Err(invalid("path", "must be an absolute path".to_owned()));
    }
    require_length(
        "path",
        &commit.path,
        "TEXT_BYTES_MAX",
        limits::TEXT_BYTES_MAX,
    )?;
    require_length(
        "digest",
        &commit.digest,
        "NAME_BYTES_MAX",
        limits::NAME_BYTES_MAX,
    )
}
