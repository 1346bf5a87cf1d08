//! Why a job waits, what would change that, and when it should start: the planner's own answer, asked for one job.
//!
//! Nothing here guesses the reason. The blocker is the one that the last round of the decision meets in the job's turn;
//! a remedy is tried out, on a fork of the state with the same `apply` and the same rounds, or in the turn with the same
//! search.

mod advice;
mod classes;
mod forecast;
mod patience;
mod position;
mod queues;
mod remedy;
mod turn;

use serde::{Deserialize, Serialize};

pub use classes::ClassCount;
pub use forecast::{Basis, Start};
pub use position::Position;
pub use remedy::Remedy;

use muster_engine::cells::{CellShortage, CellsLeft};
use muster_engine::state::{Job, State};
use muster_model::ids::JobId;
use muster_model::time::TimeMs;

use crate::explain::patience::Patience;
use crate::explain::turn::Met;
use crate::{Blocker, at, rounds};

/// Why a job waits, and what would let it run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Why its next waiting unit is not placed; none if nothing of it waits, or if it is about to be placed. A job that is
    /// being cancelled says so until the last of its attempts has ended.
    pub blocker: Option<Blocker>,
    /// Units that wait.
    pub waiting_units: u64,
    /// Where it stands among those that wait; none if nothing of it waits.
    pub position: Option<Position>,
    /// When its next unit should start; none if nothing of it waits, or if nobody can tell.
    pub start: Option<Start>,
    /// The cluster as far as the job may use it, by GPU model; under an empty name hosts without GPUs.
    pub classes: Vec<ClassCount>,
    /// What its virtual cluster is guaranteed and what there is of it; empty for other jobs.
    pub cells: Vec<CellsLeft>,
    /// Kinds of cells of which bad hardware leaves fewer than are owed, over all virtual clusters; empty for other jobs.
    pub cells_missing: Vec<CellShortage>,
    /// The smallest change known to help.
    pub remedy: Option<Remedy>,
    /// Whether that was tried out and is enough by itself; otherwise it is needed, and maybe more is.
    pub remedy_is_enough: bool,
    /// Whether patience ended before all looks were taken: then there may be a smaller remedy, and the start may be
    /// missing although it could be told.
    pub is_cut_short: bool,
}

/// Explains a job; none if there is no such job.
///
/// It plans several times: ask for the jobs that somebody looks at, not for all; [`blocker`] plans once.
#[must_use]
pub fn explain(state: &State, job: JobId, now: TimeMs) -> Option<Explanation> {
    explain_while(state, job, now, &|| true)
}

/// Explains a job as far as that can be done with patience, which is asked for before every look ahead but the first: what
/// is in the way is told always, the remedy and the start are looked for while it lasts.
#[must_use]
pub fn explain_while(
    state: &State,
    job: JobId,
    now: TimeMs,
    lasts: &dyn Fn() -> bool,
) -> Option<Explanation> {
    let patience = Patience::new(lasts);
    let seen = at(state, now);
    let job = seen.job(job)?;
    let last = rounds::last(&seen, now);
    let met = turn::of(&last, job, now);
    let then = last.state.job(job.id).map_or(job, |then| then);
    let advice = advice::find(&seen, then, (&met, &patience));
    let waits = job.counts.waiting > 0;
    let start = waits
        .then(|| forecast::start(&seen, job, (&met, &patience)))
        .flatten();
    let is_cluster = seen
        .queues
        .get(job.spec.queue.as_str())
        .is_some_and(|queue| !queue.retired && queue.config.is_virtual_cluster());
    let allocation = Some(&seen.index.allocation).filter(|_| is_cluster && waits);
    Some(Explanation {
        blocker: met.blocker.clone(),
        waiting_units: job.counts.waiting,
        position: waits.then(|| position::of(&seen, job)),
        start,
        classes: classes::class_counts(&seen, job),
        cells: allocation.map_or_else(Vec::new, |cells| cells.cells_left(&job.spec.queue)),
        cells_missing: allocation.map_or_else(Vec::new, |cells| cells.shortages()),
        remedy_is_enough: advice.as_ref().is_some_and(|advice| advice.is_enough),
        remedy: advice.map(|advice| advice.remedy),
        is_cut_short: patience.has_ended(),
    })
}

/// Why a job's next waiting unit is not placed; none if there is no such job, if nothing of it waits, or if it is about
/// to be placed.
#[must_use]
pub fn blocker(state: &State, job: JobId, now: TimeMs) -> Option<Blocker> {
    let seen = at(state, now);
    let job = seen.job(job)?;
    turn::of(&rounds::last(&seen, now), job, now).blocker
}

/// Whether two looks at a job differ for the better: more of it is placed, or nothing is in its way.
fn is_better(met: &Met<'_>, before: &Met<'_>) -> bool {
    met.blocker.is_none() || met.placed > before.placed
}

/// Whether a job could go on in another state.
fn helps(fork: &State, job: &Job, before: &Met<'_>) -> bool {
    let now = before.now;
    let seen = at(fork, now);
    let known = seen.job(job.id);
    known.is_some_and(|job| is_better(&turn::of(&rounds::last(&seen, now), job, now), before))
}
