//! Event loop of the simulator: virtual time jumps from one event to the next.
//!
//! At every instant, tasks end and hosts fail or return first, then jobs arrive, then the planner runs, and
//! its decisions go through `apply`. Results are read from the engine's own events, as a worker or a user
//! would observe them; nothing here knows the planner's reasons.

mod checkpoint;
mod decide;
pub(crate) mod engine;
mod fault_injection;
mod fault_random;
mod follow;
mod happening;
mod observer;
mod out_of_placement;
mod repair;
mod run;

use muster_harness::EngineError;
use muster_model::rejection::Rejection;

pub use fault_injection::HealthCounts;
pub(crate) use observer::Observed;
pub use out_of_placement::HealthyOutByCause;

use crate::measure::JobRecord;
use crate::policy::Policy;
use crate::workload::{LeftOut, Scenario};

/// Instants between two progress reports.
const PROGRESS_INSTANTS: u64 = 1_024;

/// Progress of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Jobs that have ended, with any result.
    pub jobs_ended: u64,
    /// Total number of jobs.
    pub jobs: u64,
    /// Virtual time since the first submission, in milliseconds.
    pub virtual_ms: u64,
}

/// Result of a simulation.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The policy.
    pub policy: Policy,
    /// One record per job, in order of submission.
    pub records: Vec<JobRecord>,
    /// Jobs that no host, or not even the whole cluster, could hold.
    pub fits_nowhere: LeftOut,
    /// Jobs whose submission was refused.
    pub refused: LeftOut,
    /// Commands applied.
    pub commands: u64,
    /// Planning rounds.
    pub rounds: u64,
    /// Placements made.
    pub placements: u64,
    /// Audits of the state, all without findings.
    pub audits: u64,
    /// Health figures, if the engine manages health.
    pub health: Option<HealthCounts>,
    /// Names of the report's queues, in order.
    pub(crate) queues: Vec<String>,
    pub(crate) observed: Observed,
}

/// A simulation that cannot continue: its queues are impossible, or the engine contradicts itself.
#[derive(Debug, thiserror::Error)]
pub enum SimulateError {
    /// The cluster cannot honour the queues.
    #[error("setting up the queues of the policy")]
    Setup {
        /// Reason of the refusal.
        #[source]
        rejection: Box<Rejection>,
    },
    /// The engine contradicts itself.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Runs a scenario to its end under one policy: until every job has ended, or nothing more can happen.
///
/// # Errors
/// [`SimulateError::Setup`] if the cluster cannot honour the queues; otherwise the engine contradicts
/// itself, which is a bug in it.
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
