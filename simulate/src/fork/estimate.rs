//! Run-time estimates: the only estimated input of a fork.

use muster_engine::state::{Attempt, Job, State, Unit};
use muster_model::ids::AttemptEpoch;
use muster_model::time::TimeMs;
use serde::Serialize;

/// Basis of an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EstimateBasis {
    /// The job's own time limit.
    TimeLimit,
    /// The mean of finished jobs of the same queue, user and name.
    UsualRunTime,
    /// The assumption for jobs without any information.
    Assumed,
}

impl EstimateBasis {
    /// Name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TimeLimit => "time limit",
            Self::UsualRunTime => "usual",
            Self::Assumed => "assumed",
        }
    }
}

/// Estimator of the end of running work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimator {
    /// Total run time assumed for work without any information, in milliseconds; `None`: it never ends.
    pub assumed_ms: Option<u64>,
}

/// An attempt whose end is to be estimated.
#[derive(Clone, Copy)]
pub(super) struct Running<'a> {
    pub(super) job: &'a Job,
    pub(super) unit: &'a Unit,
    pub(super) attempt: &'a Attempt,
}

impl Estimator {
    /// Expected end of an attempt on its own, with the basis; `None` if it never ends.
    ///
    /// - At its time limit at the latest, which counts from its placement.
    /// - Otherwise when its run time, including what earlier attempts saved, reaches the usual time of its
    ///   kind.
    /// - If neither is known, or it has run for longer than usual: after the assumed time; an attempt that
    ///   has run for longer than that is assumed to run as long again.
    pub(super) fn end(
        self,
        state: &State,
        running: Running<'_>,
        now: TimeMs,
    ) -> (Option<TimeMs>, EstimateBasis) {
        let Running { job, unit, attempt } = running;
        let since = attempt.running_at.unwrap_or(now);
        let saved_ms = saved_ms(unit, attempt.epoch);
        let after_work = |total_ms: u64| since.after(total_ms.saturating_sub(saved_ms));
        let limit = job.spec.scheduling.run_time_ms_max;
        let begins = attempt.placed_at.after(attempt.paused_ms());
        let limit = limit.map(|limit_ms| begins.after(limit_ms));
        let usual = state.index.run_times.usual_ms(&job.spec);
        let usual = usual.map(after_work).filter(|end| *end > now);
        match (limit, usual) {
            (Some(limit), Some(usual)) if usual < limit => {
                (Some(usual), EstimateBasis::UsualRunTime)
            }
            (Some(limit), _) => (Some(limit), EstimateBasis::TimeLimit),
            (None, Some(usual)) => (Some(usual), EstimateBasis::UsualRunTime),
            (None, None) => {
                let assumed = self.assumed_ms.map(|assumed_ms| {
                    let end = after_work(assumed_ms);
                    let as_long_again = now.after(now.since(since).max(1));
                    if end > now { end } else { as_long_again }
                });
                (assumed, EstimateBasis::Assumed)
            }
        }
    }

    /// Basis of the estimate of a job that is not placed yet.
    pub(super) fn basis(self, state: &State, job: &Job) -> EstimateBasis {
        let usual_ms = state.index.run_times.usual_ms(&job.spec);
        match (job.spec.scheduling.run_time_ms_max, usual_ms) {
            (Some(limit_ms), Some(usual_ms)) if usual_ms < limit_ms => EstimateBasis::UsualRunTime,
            (Some(_), _) => EstimateBasis::TimeLimit,
            (None, Some(_)) => EstimateBasis::UsualRunTime,
            (None, None) => EstimateBasis::Assumed,
        }
    }
}

/// Milliseconds of work saved in checkpoints of a unit's earlier attempts.
fn saved_ms(unit: &Unit, before: AttemptEpoch) -> u64 {
    let earlier = unit.past.iter().filter(|past| past.epoch < before);
    let saved = earlier.filter_map(|past| {
        let mut checkpoints = unit.checkpoints.iter();
        let newest = checkpoints.rfind(|checkpoint| checkpoint.epoch == past.epoch)?;
        Some(newest.committed_at.since(past.running_at?))
    });
    saved.sum()
}
