//! Fork for what-if questions: the state of a running cluster is forked, changed, and simulated next to the same state
//! unchanged.
//!
//! Nothing here decides placement: both futures use the real `plan` and `apply`. The one unknown, the run
//! time of work, is estimated in one place ([`Estimator`]), and every estimate states its basis. The answer
//! is the difference between the two futures.
//!
//! Start reading at [`what_if`], then `course.rs` (one future) and `compare.rs` (the difference).

mod blocker_text;
mod change;
mod compare;
mod difference;
mod estimate;
mod files;
mod future;
mod happening;
mod page;
mod record;
mod reports;
mod timeline;

use muster_engine::effects::QueueEffect;
use muster_engine::state::State;
use muster_model::ids::JobId;
use muster_model::rejection::Rejection;
use muster_model::time::TimeMs;

pub use change::Change;
pub use difference::{
    Assumptions, Difference, Effect, HostGpus, JobDifference, JobOutcome, StopDifference, Totals,
};
pub use estimate::{EstimateBasis, Estimator};

use future::Future;

use crate::world::SimulateError;

/// Default horizon: a day of virtual time.
pub const HORIZON_MS_DEFAULT: u64 = 86_400_000;
/// Longest horizon: estimation errors add up, and the estimates are worthless after a month.
pub const HORIZON_MS_MAX: u64 = 31 * 86_400_000;
/// Default run time of work without any information: an hour.
pub const ASSUMED_RUN_MS_DEFAULT: u64 = 3_600_000;

/// Progress of a what-if.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkProgress {
    /// False during the future without changes, which is simulated first.
    pub is_changed: bool,
    /// Virtual time since the fork, in milliseconds.
    pub virtual_ms: u64,
}

/// A what-if that has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ForkError {
    /// The cluster would refuse a change.
    #[error("{change} would be refused")]
    Refused {
        /// The change, as text for users.
        change: String,
        /// Reason for the refusal.
        #[source]
        rejection: Box<Rejection>,
    },
    /// The engine contradicts itself.
    #[error(transparent)]
    Simulate(#[from] SimulateError),
}

/// A state and the time at which it was taken.
#[derive(Clone, Debug)]
pub struct Fork {
    /// State of the cluster.
    pub state: State,
    /// Time by the cluster's clock; virtual time begins here.
    pub now: TimeMs,
}

/// Settings of the simulation of a fork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForkSettings {
    /// Simulated virtual time in milliseconds.
    pub horizon_ms: u64,
    /// Estimator of run times.
    pub estimator: Estimator,
    /// Number of instants between two audits of the state; `None` for no audits.
    pub audit_every: Option<u64>,
}

impl Default for ForkSettings {
    /// A day; work without any information runs for an hour; no audits.
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

/// Simulates a fork with and without changes, and returns the difference. The changes are applied at once,
/// in order.
///
/// # Errors
/// [`ForkError::Refused`] if the cluster would refuse a change; [`ForkError::Simulate`] is a bug of the
/// engine.
pub fn what_if(
    fork: &Fork,
    changes: &[Change],
    settings: ForkSettings,
    progress: &mut dyn FnMut(ForkProgress),
) -> Result<Difference, ForkError> {
    let mut base = Future::new(fork, settings);
    let mut then = Future::new(fork, settings);
    let made = then.change(changes)?;
    // A refused change is reported before anything is simulated.
    play(&mut base, false, progress)?;
    play(&mut then, true, progress)?;
    Ok(compare::compare(fork, settings, base, then, made))
}

/// Immediate effects of the changes.
#[derive(Debug, Default)]
struct Effects {
    /// Submitted jobs, in order.
    submitted: Vec<JobId>,
    /// Effects on the queues.
    queues: Vec<QueueEffect>,
}

fn play(
    course: &mut Future,
    is_changed: bool,
    progress: &mut dyn FnMut(ForkProgress),
) -> Result<(), SimulateError> {
    /// Instants between two progress reports.
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
