//! Explanation of one waiting job, on request: its pending reason, a remedy, and its expected start.
//!
//! Nothing is guessed. The blocker is the one that the last round of the decision finds in the job's turn;
//! a remedy is tried out on a fork of the state with the same `apply` and the same rounds, or within the
//! turn with the same search.

mod advice;
mod classes;
mod forecast;
mod position;
mod queues;
mod remedy;
mod search_budget;
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

use crate::explain::search_budget::SearchBudget;
use crate::explain::turn::TurnOutcome;
use crate::{Blocker, at, rounds};

/// The reason why a job waits, and what would let it run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Blocker of its next waiting unit; `None` if no unit waits or it is about to be placed. A job that is
    /// being cancelled reports that until the last of its attempts has ended.
    pub blocker: Option<Blocker>,
    /// Number of waiting units.
    pub waiting_units: u64,
    /// Position among the waiting jobs; `None` if no unit waits.
    pub position: Option<Position>,
    /// Expected start of its next unit; `None` if no unit waits or the start is unknown.
    pub start: Option<Start>,
    /// The cluster as far as the job may use it, by GPU model; hosts without GPUs under an empty name.
    pub classes: Vec<ClassCount>,
    /// Cells guaranteed to its virtual cluster and what is left of them; empty for other jobs.
    pub cells: Vec<CellsLeft>,
    /// Kinds of cells of which faulty hardware leaves fewer than are guaranteed, over all virtual clusters;
    /// empty for other jobs.
    pub cells_missing: Vec<CellShortage>,
    /// The smallest change known to help.
    pub remedy: Option<Remedy>,
    /// Whether the remedy was tried and suffices by itself; otherwise it is necessary, but possibly not
    /// sufficient.
    pub remedy_is_enough: bool,
    /// Whether the search budget ran out before all trials: there may be a smaller remedy, and the start
    /// may be missing although it could be forecast.
    pub is_cut_short: bool,
}

/// Explains a job; `None` if there is no such job.
///
/// Plans several times: call it for the jobs that a user looks at, not for all; [`blocker`] plans once.
#[must_use]
pub fn explain(state: &State, job: JobId, now: TimeMs) -> Option<Explanation> {
    explain_while(state, job, now, &|| true)
}

/// Explains a job within a search budget, which is checked before every trial but the first: the blocker is
/// always reported, the remedy and the start only while the budget lasts.
#[must_use]
pub fn explain_while(
    state: &State,
    job: JobId,
    now: TimeMs,
    lasts: &dyn Fn() -> bool,
) -> Option<Explanation> {
    let budget = SearchBudget::new(lasts);
    let seen = at(state, now);
    let job = seen.job(job)?;
    let last = rounds::last_round(&seen, now);
    let outcome = turn::of(&last, job, now);
    let then = last.state.job(job.id).map_or(job, |then| then);
    let advice = advice::find(&seen, then, &outcome, &budget);
    let waits = job.counts.waiting > 0;
    let start = waits
        .then(|| forecast::start(&seen, job, &outcome, &budget))
        .flatten();
    let is_cluster = seen
        .queues
        .get(job.spec.queue.as_str())
        .is_some_and(|queue| !queue.retired && queue.config.is_virtual_cluster());
    let allocation = Some(&seen.index.allocation).filter(|_| is_cluster && waits);
    Some(Explanation {
        blocker: outcome.blocker.clone(),
        waiting_units: job.counts.waiting,
        position: waits.then(|| position::of(&seen, job)),
        start,
        classes: classes::class_counts(&seen, job),
        cells: allocation.map_or_else(Vec::new, |cells| cells.cells_left(&job.spec.queue)),
        cells_missing: allocation.map_or_else(Vec::new, |cells| cells.shortages()),
        remedy_is_enough: advice.as_ref().is_some_and(|advice| advice.is_enough),
        remedy: advice.map(|advice| advice.remedy),
        is_cut_short: budget.has_ended(),
    })
}

/// Blocker of a job's next waiting unit; `None` if there is no such job, no unit waits, or it is about to
/// be placed.
#[must_use]
pub fn blocker(state: &State, job: JobId, now: TimeMs) -> Option<Blocker> {
    let seen = at(state, now);
    let job = seen.job(job)?;
    turn::of(&rounds::last_round(&seen, now), job, now).blocker
}

/// Whether the first result is better for the job: more units are placed, or it has no blocker.
fn is_better(outcome: &TurnOutcome<'_>, before: &TurnOutcome<'_>) -> bool {
    outcome.blocker.is_none() || outcome.placed > before.placed
}

/// Whether a job could proceed in another state.
fn helps(fork: &State, job: &Job, before: &TurnOutcome<'_>) -> bool {
    let now = before.now;
    let seen = at(fork, now);
    let known = seen.job(job.id);
    known.is_some_and(|job| is_better(&turn::of(&rounds::last_round(&seen, now), job, now), before))
}
