//! The event loop: virtual time jumps from one instant at which something happens to the next.
//!
//! At every instant first tasks end and hosts fail or return, then jobs arrive, then the planner is asked, and
//! whatever it decides goes through `apply`. What becomes true is read from the engine's own events, as a worker
//! and a user would learn it; nothing here knows why the planner did what it did.

mod agenda;
mod care;
mod checkpoint;
mod decide;
pub(crate) mod engine;
mod follow;
mod luck;
mod observer;
mod out;
mod run;
mod ward;

use muster_model::rejection::Rejection;
use muster_model::time::TimeMs;

pub(crate) use observer::Observed;
pub use out::HealthyOut;
pub use ward::HealthCounts;

use crate::measure::JobRecord;
use crate::policy::Policy;
use crate::workload::{LeftOut, Scenario};

/// Instants between two reports of progress.
const PROGRESS_INSTANTS: u64 = 1_024;

/// How far a simulation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Jobs that have reached their end, whatever it was.
    pub jobs_ended: u64,
    /// Jobs in all.
    pub jobs: u64,
    /// Virtual time since the first submission, in milliseconds.
    pub virtual_ms: u64,
}

/// What a simulation did.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The rules that it went by.
    pub policy: Policy,
    /// One record a job, in order of submission.
    pub records: Vec<JobRecord>,
    /// Jobs that no host, or not the whole cluster, could ever hold.
    pub fits_nowhere: LeftOut,
    /// Jobs whose submission was refused.
    pub refused: LeftOut,
    /// Commands applied.
    pub commands: u64,
    /// Planning rounds.
    pub rounds: u64,
    /// Placements made.
    pub placements: u64,
    /// Audits of the state, none of which found anything.
    pub audits: u64,
    /// What became of health, where the engine looks after it.
    pub health: Option<HealthCounts>,
    /// Names of the report's queues, in order.
    pub(crate) queues: Vec<String>,
    pub(crate) observed: Observed,
}

/// A simulation that cannot go on: its queues are impossible, or the engine contradicts itself.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The cluster cannot honour the queues.
    #[error("setting up the queues of the policy")]
    Setup {
        /// Why.
        #[source]
        rejection: Box<Rejection>,
    },
    /// A command was refused that should have had effect.
    #[error("at {at}: {command} was refused")]
    Refused {
        /// Virtual time.
        at: TimeMs,
        /// The command, for people.
        command: String,
        /// Why.
        #[source]
        rejection: Box<Rejection>,
    },
    /// An audit found broken invariants.
    #[error("at {at}: the audit found {}", findings.join("; "))]
    Unsound {
        /// Virtual time.
        at: TimeMs,
        /// What it found, for people.
        findings: Vec<String>,
    },
    /// The planner went on deciding without an end.
    #[error("at {at}: {rounds} planning rounds at one instant and no end in sight")]
    Restless {
        /// Virtual time.
        at: TimeMs,
        /// Rounds so far.
        rounds: u64,
    },
}

/// Runs a scenario to its end under one policy: until every job has ended, or nothing more can happen.
///
/// # Errors
/// [`SimulateError::Setup`] if the cluster cannot honour the queues; otherwise the engine contradicts itself, which is a
/// bug in it.
pub fn simulate(
    scenario: &Scenario,
    policy: Policy,
    progress: &mut dyn FnMut(Progress),
) -> Result<Outcome, SimulateError> {
    let mut world = run::World::new(scenario, policy)?;
    let mut instants = 0u64;
    while world.step()? {
        instants += 1;
        if instants.is_multiple_of(PROGRESS_INSTANTS) {
            progress(world.progress());
        }
    }
    progress(world.progress());
    Ok(world.finish())
}
