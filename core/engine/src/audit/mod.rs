//! Independent linter of the state: invariants that hold at every revision, regardless of history.
//!
//! Written independently of `apply` and sharing no code with it, so that one catches the other's mistakes.
//! Tests and the simulation call [`audit`] after every step; it reads the whole state, so a live replica
//! calls it rarely.

mod access;
mod attempt_events;
mod cells;
mod claims;
mod derived;
mod health;
mod hosts;
mod jobs;
mod locations;
mod logs;
mod members;
mod pipelines;
mod units;
mod usage;

use std::fmt;

use crate::state::State;

/// Invariants (numbers as in `docs/invariants.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// I1: a GPU is held by one attempt, and attempts and GPUs agree about it.
    GpuExclusivity,
    /// I2: attempt epochs strictly increase and lie in the past.
    Epochs,
    /// I3: leadership epochs lie in the past.
    Leadership,
    /// I30: recorded replicas are unique and in order, and no id is above the highest one ever used.
    Replicas,
    /// I5: stored answers belong to commands that took effect.
    Requests,
    /// I6: an attempt has all tasks of its unit.
    GangAtomicity,
    /// I7: phases are consistent.
    Lifecycle,
    /// I8: allocations add up and fit.
    Capacity,
    /// A claim and what it claims agree, and a GPU is claimed once.
    Claims,
    /// I17: every cell is bound to at most one virtual cluster within its quota, and each can get what it is
    /// still owed.
    VirtualClusters,
    /// I19: hosts are located as configured, else as reported by their workers without contradiction; cells
    /// nest.
    Locations,
    /// I8: a queue counts its unfinished jobs and the usage of its work.
    QueueUsage,
    /// I10: events are ordered, complete by revision and bounded.
    Events,
    /// I22: the events record each attempt's life completely, in order and once.
    AttemptEvents,
    /// I11: derived data equals its recomputation.
    Derived,
    /// I13: every live object is in an index that advances it.
    Unindexed,
    /// I14: the retry budget is kept.
    RetryBudget,
    /// I20: nothing of a job is placed before its dependencies have ended as required.
    Dependencies,
    /// I21: the checkpoints that a unit may resume from are kept.
    Retention,
    /// I26: jobs of a pipeline were accepted together and depend on no later job of it.
    Pipelines,
    /// I28: health and placement agree, and nothing runs during a repair or a check.
    Health,
    /// I32: users and join tokens are within their limits, and no token proves two users.
    Users,
    /// Names and keys refer to the right records.
    Identity,
    /// Every list is within its limit.
    Limits,
}

/// A violated invariant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The invariant.
    pub rule: Rule,
    /// The object: `job 7 unit 0`, `host 3`.
    pub subject: String,
    /// The contradiction.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{:?}: {}: {}",
            self.rule, self.subject, self.detail
        )
    }
}

/// Returns all violated invariants of a state; empty if it is sound.
#[must_use]
pub fn audit(state: &State) -> Vec<Finding> {
    let mut report = Report::default();
    jobs::check(state, &mut report);
    hosts::check(state, &mut report);
    derived::check(state, &mut report);
    members::check_vacancy_index(state, &mut report);
    logs::check(state, &mut report);
    pipelines::check(state, &mut report);
    attempt_events::check(state, &mut report);
    usage::check(state, &mut report);
    claims::check(state, &mut report);
    locations::check(state, &mut report);
    cells::check(state, &mut report);
    health::check(state, &mut report);
    access::check(state, &mut report);
    report.0
}

/// Findings so far.
#[derive(Default)]
struct Report(Vec<Finding>);

impl Report {
    /// Adds a finding unless `holds`.
    fn require(
        &mut self,
        holds: bool,
        rule: Rule,
        subject: &dyn fmt::Display,
        detail: impl FnOnce() -> String,
    ) {
        if !holds {
            self.0.push(Finding {
                rule,
                subject: subject.to_string(),
                detail: detail(),
            });
        }
    }
}
