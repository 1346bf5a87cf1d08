//! Committed checkpoints of jobs, where they matter: if the scheduler may preempt or move jobs, or rules
//! drain faulty hardware.

use muster_model::command::{CheckpointCommand, CheckpointCommit, Command};
use muster_model::ids::{AttemptEpoch, UnitIndex};

use crate::HealthFeatures;
use crate::world::SimulateError;
use crate::world::happening::Event;
use crate::world::run::World;

impl World<'_> {
    /// Time between two checkpoints that a job commits; `None` if it commits none.
    fn commit_interval_ms(&self) -> Option<u64> {
        let settings = &self.scenario.settings;
        let interval_ms = settings.checkpoint_interval_ms.filter(|ms| *ms > 0);
        let drains = self
            .scenario
            .health_features
            .is_some_and(|features| features > HealthFeatures::Nothing);
        let stops_work = self.policy.preempts() || settings.rules.defragment || drains;
        interval_ms.filter(|_| settings.job_information.checkpoints && stops_work)
    }

    /// Schedules the next checkpoint after an attempt has begun or committed one: it is due after another
    /// interval of run time, unless the job is done by then.
    pub(super) fn expect_checkpoint(&mut self, job: usize, epoch: AttemptEpoch) {
        let (Some(interval_ms), Some((_, since))) =
            (self.commit_interval_ms(), self.runs[job].attempt)
        else {
            return;
        };
        let now = self.engine.now;
        let left_ms = self.observer.left_ms(job);
        let left_ms = left_ms.map(|left_ms| left_ms.saturating_sub(now.since(since)));
        if left_ms.is_none_or(|left_ms| left_ms > interval_ms) {
            let at = now.after(interval_ms);
            self.agenda.add(at, Event::Checkpoint { job, epoch });
        }
    }

    pub(super) fn commit_checkpoint(
        &mut self,
        job: usize,
        epoch: AttemptEpoch,
    ) -> Result<(), SimulateError> {
        let run = self.runs[job];
        let (Some(id), Some((current, since))) = (run.id, run.attempt) else {
            return Ok(());
        };
        if current != epoch {
            return Ok(()); // stopped before
        }
        // Milliseconds of run time count as training steps.
        let step = self.observer.done_ms(job) + self.engine.now.since(since);
        self.engine
            .carry_out(&Command::Checkpoint(CheckpointCommand::CommitCheckpoint {
                leader: self.engine.leader(),
                job: id,
                unit: UnitIndex(0),
                checkpoint: CheckpointCommit {
                    epoch,
                    step,
                    path: format!("/checkpoints/{step}"),
                    size_bytes: 0,
                    digest: String::new(),
                    save_ms: None,
                },
            }))?;
        self.follow()?;
        self.expect_checkpoint(job, epoch);
        Ok(())
    }
}
