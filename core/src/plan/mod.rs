//! The planner: a pure function from the state to a set of placements, with a reason for everything that
//! it does not place.
//!
//! It may be clever, slow or wrong: `apply` re-checks every placement with the same feasibility function.

mod capacity;
mod explain;
mod order;
mod potential;
mod round;
mod unit;

use serde::{Deserialize, Serialize};

pub use explain::{ClassCount, Explanation, Remedy, explain};

use crate::command::{Claiming, Command, Placement};
use crate::ids::JobId;
use crate::state::State;
use crate::time::TimeMs;

/// Bounds of one planning round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Steps to take at most.
    pub steps_max: usize,
    /// Jobs to examine at most.
    pub examined_max: usize,
}

impl Default for Budget {
    /// 4,096 steps and 65,536 examined jobs: about 10 ms of work.
    fn default() -> Self {
        Self {
            steps_max: 4_096,
            examined_max: 65_536,
        }
    }
}

/// The outcome of one planning round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What to do, in order of decision; each is checked again when it is applied, and those after a refused one
    /// may be refused for it.
    pub steps: Vec<Command>,
    /// Jobs that were examined and not placed whole, with the first reason for each.
    pub blocked: Vec<(JobId, Blocker)>,
    /// True if the budget ended the round before everything was examined.
    pub more: bool,
    /// When the passing of time alone changes what can be decided (a back-off ends, a reservation falls due), in
    /// stamped time: plan again then.
    pub again_at: Option<TimeMs>,
}

impl Plan {
    /// The placements among the steps, in order.
    pub fn placements(&self) -> impl Iterator<Item = &Placement> {
        self.steps.iter().filter_map(|step| match step {
            Command::Place(placement) => Some(placement),
            _ => None,
        })
    }

    /// The claims among the steps, in order.
    pub fn claims(&self) -> impl Iterator<Item = &Claiming> {
        self.steps.iter().filter_map(|step| match step {
            Command::Claim(claiming) => Some(claiming),
            _ => None,
        })
    }
}

/// Why a job (its next waiting unit) is not placed now.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Blocker {
    /// It waits for the end of a back-off.
    BackOff {
        /// Until when.
        until: TimeMs,
    },
    /// The job is being cancelled.
    Cancelling,
    /// No host of an acceptable class exists at all, or none is large enough even when empty.
    NoSuchHost {
        /// What is asked for, for people.
        need: String,
    },
    /// The cluster could never hold the gang, even empty and unblocked.
    ExceedsCluster {
        /// GPUs that the gang needs.
        need_gpus: u64,
        /// GPUs that acceptable hosts have in all.
        have_gpus: u64,
    },
    /// Not enough is free now.
    Resources {
        /// GPUs that the unit needs.
        need_gpus: u64,
        /// GPUs free on acceptable hosts.
        free_gpus: u64,
        /// Tasks of the unit that could be placed now.
        fits_tasks: u64,
        /// Tasks that the unit has.
        need_tasks: u64,
    },
    /// A job ahead of it in its queue waits for the same hosts (strict order).
    Behind {
        /// The job ahead.
        ahead: JobId,
    },
}

/// Plans one round: jobs by priority, then by age, each as far as there is room now.
///
/// Strict order: a job that waits for room holds up those behind it in its queue that compete for the same
/// hosts ([`crate::state::Lane`]). A job that the cluster could never hold, or whose back-off is not over,
/// holds up nobody. The units of an array are placed one by one, a gang whole or not at all, on GPUs of one
/// model, on as few hosts as possible.
///
/// The cost follows from what is placed and how many lanes wait, not from the number of hosts or jobs.
#[must_use]
pub fn plan(state: &State, now: TimeMs, budget: Budget) -> Plan {
    round::Round::new(state, now, budget).run()
}
