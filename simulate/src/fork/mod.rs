//! What if: the state of a running cluster is forked, changed, and played forward beside the same state unchanged.
//!
//! Nothing here decides who runs where: both futures come from the real `plan` and `apply`. What nobody can know, how
//! long work will run, is estimated in one place ([`Estimator`]), and every estimate says what it stands on. The answer
//! is the difference between the two futures.
//!
//! Start reading at [`what_if`], then `course.rs` (one future) and `compare.rs` (the difference).

mod agenda;
mod change;
mod compare;
mod course;
mod difference;
mod estimate;
mod files;
mod page;
mod record;
mod reports;
mod timeline;
mod why;

use muster_engine::effects::QueueEffect;
use muster_engine::state::State;
use muster_model::ids::JobId;
use muster_model::rejection::Rejection;
use muster_model::time::TimeMs;

pub use change::Change;
pub use difference::{
    Assumptions, Difference, Effect, Fate, JobDifference, Place, StopDifference, Totals,
};
pub use estimate::{Estimator, Ground};

use course::Course;

use crate::world::SimulateError;

/// Virtual time that is played where nothing else is said: a day.
pub const HORIZON_MS_DEFAULT: u64 = 86_400_000;
/// Longest horizon: estimates of ends add up, and nothing of them is left after a month.
pub const HORIZON_MS_MAX: u64 = 31 * 86_400_000;
/// Running time of work of which nothing is known, where nothing else is said: an hour.
pub const ASSUMED_RUN_MS_DEFAULT: u64 = 3_600_000;

/// How far a what-if is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkProgress {
    /// False while the future without changes is played, which comes first.
    pub is_changed: bool,
    /// Virtual time since the fork, in milliseconds.
    pub virtual_ms: u64,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    /// The cluster would refuse a change.
    #[error("{change} would be refused")]
    Refused {
        /// Which one, for people.
        change: String,
        /// Why.
        #[source]
        rejection: Box<Rejection>,
    },
    /// The engine contradicts itself.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
}

/// A state and the instant at which it was taken.
#[derive(Clone, Debug)]
pub struct Fork {
    /// The cluster.
    pub state: State,
    /// When, by the cluster's clock; virtual time begins here.
    pub now: TimeMs,
}

/// How a fork is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkSettings {
    /// Virtual time that is played, in milliseconds.
    pub horizon_ms: u64,
    /// How long work runs.
    pub estimator: Estimator,
    /// The state is audited after so many instants; never if none.
    pub audit_every: Option<u64>,
}

impl Default for ForkSettings {
    /// A day; work of which nothing is known runs for an hour; no audits.
    fn default() -> Self {
        Self {
            horizon_ms: HORIZON_MS_DEFAULT,
            estimator: Estimator {
                assumed_ms: Some(ASSUMED_RUN_MS_DEFAULT),
            },
            audit_every: None,
        }
    }
}

/// Plays a fork forward with and without changes, and tells the difference. The changes are made at once, in order.
///
/// # Errors
/// [`ForkError::Refused`] if the cluster would refuse a change; [`ForkError::Simulate`] is a bug of the engine.
pub fn what_if(
    fork: &Fork,
    changes: &[Change],
    settings: ForkSettings,
    progress: &mut dyn FnMut(ForkProgress),
) -> Result<Difference, ForkError> {
    let mut base = Course::new(fork, settings);
    let mut then = Course::new(fork, settings);
    let made = then.change(changes)?;
    // A change that is refused is told before anything is played.
    play(&mut base, false, progress)?;
    play(&mut then, true, progress)?;
    Ok(compare::compare(fork, settings, (base, then), made))
}

/// What the changes did at once.
#[derive(Debug, Default)]
struct Made {
    /// Jobs that they submit, in order.
    submitted: Vec<JobId>,
    /// What they mean for the queues.
    queues: Vec<QueueEffect>,
}

fn play(
    course: &mut Course,
    is_changed: bool,
    progress: &mut dyn FnMut(ForkProgress),
) -> Result<(), SimulateError> {
    /// Instants between two reports of progress.
    const PROGRESS_INSTANTS: u64 = 256;
    let mut instants = 0u64;
    course.begin()?;
    while course.step()? {
        instants += 1;
        let every = course.audit_every;
        if every.is_some_and(|every| instants.is_multiple_of(every.max(1))) {
            course.engine.audit()?;
        }
        if instants.is_multiple_of(PROGRESS_INSTANTS) {
            let virtual_ms = course.passed_ms();
            progress(ForkProgress {
                is_changed,
                virtual_ms,
            });
        }
    }
    let virtual_ms = course.passed_ms();
    progress(ForkProgress {
        is_changed,
        virtual_ms,
    });
    Ok(())
}
