//! How long work will run: the only thing in a fork that is guessed.

use muster_engine::state::{Attempt, Job, State, Unit};
use muster_model::ids::AttemptEpoch;
use muster_model::time::TimeMs;
use serde::Serialize;

/// What an estimate stands on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Ground {
    /// The job's own time limit.
    Told,
    /// The mean of finished jobs of the same queue, user and name.
    Learnt,
    /// The assumption for jobs of which nothing is known.
    Assumed,
}

impl Ground {
    /// Its word in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Told => "told",
            Self::Learnt => "learnt",
            Self::Assumed => "assumed",
        }
    }
}

/// Estimates ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimator {
    /// Running time in all of work of which nothing is known, in milliseconds; it never ends if none.
    pub assumed_ms: Option<u64>,
}

/// An attempt of which an end is asked.
#[derive(Clone, Copy)]
pub(super) struct Running<'a> {
    pub(super) job: &'a Job,
    pub(super) unit: &'a Unit,
    pub(super) attempt: &'a Attempt,
}

impl Estimator {
    /// When an attempt ends by itself, and why that is believed; none if never.
    ///
    /// - By its time limit at the latest, which counts from its placement.
    /// - Else when it has run, together with what its earlier attempts saved, as long as its kind usually does.
    /// - Where neither is known, or it has run for longer than usual: when it has run for the assumed time; one that
    ///   has run for longer than that goes on for as long again.
    pub(super) fn end(
        self,
        state: &State,
        running: Running<'_>,
        now: TimeMs,
    ) -> (Option<TimeMs>, Ground) {
        let Running { job, unit, attempt } = running;
        let since = attempt.running_at.unwrap_or(now);
        let saved_ms = saved_ms(unit, attempt.epoch);
        let after_work = |total_ms: u64| since.after(total_ms.saturating_sub(saved_ms));
        let limit = job.spec.scheduling.run_time_ms_max;
        let limit = limit.map(|limit_ms| attempt.placed_at.after(limit_ms));
        let learnt = state.index.run_times.usual_ms(&job.spec);
        let learnt = learnt.map(after_work).filter(|end| *end > now);
        match (limit, learnt) {
            (Some(limit), Some(learnt)) if learnt < limit => (Some(learnt), Ground::Learnt),
            (Some(limit), _) => (Some(limit), Ground::Told),
            (None, Some(learnt)) => (Some(learnt), Ground::Learnt),
            (None, None) => {
                let assumed = self.assumed_ms.map(|assumed_ms| {
                    let end = after_work(assumed_ms);
                    let as_long_again = now.after(now.since(since).max(1));
                    if end > now { end } else { as_long_again }
                });
                (assumed, Ground::Assumed)
            }
        }
    }

    /// What the estimate of a job stands on that is still to be placed.
    pub(super) fn ground(self, state: &State, job: &Job) -> Ground {
        let learnt_ms = state.index.run_times.usual_ms(&job.spec);
        match (job.spec.scheduling.run_time_ms_max, learnt_ms) {
            (Some(limit_ms), Some(learnt_ms)) if learnt_ms < limit_ms => Ground::Learnt,
            (Some(_), _) => Ground::Told,
            (None, Some(_)) => Ground::Learnt,
            (None, None) => Ground::Assumed,
        }
    }
}

/// Milliseconds of work that checkpoints of a unit's attempts before this one hold.
fn saved_ms(unit: &Unit, before: AttemptEpoch) -> u64 {
    let earlier = unit.past.iter().filter(|past| past.epoch < before);
    let saved = earlier.filter_map(|past| {
        let mut checkpoints = unit.checkpoints.iter();
        let newest = checkpoints.rfind(|checkpoint| checkpoint.epoch == past.epoch)?;
        Some(newest.committed_at.since(past.running_at?))
    });
    saved.sum()
}
