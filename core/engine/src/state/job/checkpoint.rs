//! Effect of a unit's checkpoints on its next attempt.

use muster_model::command::JobDefaults;
use muster_model::ids::AttemptEpoch;
use muster_model::job::Checkpoint;
use muster_model::spec::JobSpec;
use muster_model::time::TimeMs;

use crate::state::{Attempt, Unit};

impl Unit {
    /// Returns the newest checkpoint to resume from: the newest committed one that is not damaged.
    #[must_use]
    pub fn newest_checkpoint(&self) -> Option<&Checkpoint> {
        let mut newest_first = self.checkpoints.iter().rev();
        newest_first.find(|checkpoint| checkpoint.damaged.is_none())
    }

    /// Whether an attempt committed a checkpoint with a higher step than the one it resumed from.
    #[must_use]
    pub fn has_progressed_in(&self, epoch: AttemptEpoch) -> bool {
        let good = || self.checkpoints.iter().filter(|it| it.damaged.is_none());
        let begun_from = good().rfind(|it| it.epoch < epoch);
        let newest = good().rfind(|it| it.epoch == epoch);
        match (newest, begun_from) {
            (Some(newest), Some(begun_from)) => newest.step > begun_from.step,
            (newest, _) => newest.is_some(),
        }
    }

    /// Returns the number of newest consecutive damaged checkpoints.
    #[must_use]
    pub fn bad_in_a_row(&self) -> u32 {
        let newest_first = self.checkpoints.iter().rev();
        let bad = newest_first.take_while(|checkpoint| checkpoint.damaged.is_some());
        u32::try_from(bad.count()).unwrap_or(u32::MAX)
    }

    /// Returns the consecutive attempts without a newer checkpoint after which the unit fails: the job's own
    /// setting, or the default for jobs without one that have committed a checkpoint. `None`: no limit.
    #[must_use]
    pub fn without_progress_max(
        &self,
        spec: &JobSpec,
        defaults: Option<JobDefaults>,
    ) -> Option<u32> {
        let defaults = defaults.filter(|_| !self.checkpoints.is_empty());
        let of_cluster = defaults.map(|defaults| defaults.attempts_without_progress_max);
        let own = spec.lifecycle.attempts_without_progress_max;
        own.or(of_cluster).filter(|max| *max > 0)
    }

    /// Returns the start of an attempt's unsaved work: its newest committed checkpoint, or the time it began
    /// running; `None` if it has not run yet.
    #[must_use]
    pub fn unkept_since(&self, attempt: &Attempt) -> Option<TimeMs> {
        let running_at = attempt.running_at?;
        let newest = self.checkpoints.last();
        let newest = newest.filter(|checkpoint| checkpoint.epoch == attempt.epoch);
        Some(newest.map_or(running_at, |checkpoint| {
            checkpoint.committed_at.max(running_at)
        }))
    }
}
