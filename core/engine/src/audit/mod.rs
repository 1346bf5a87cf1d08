//! Independent linter of the state: everything that must hold at every revision, whatever came before.
//!
//! Written apart from `apply` and sharing no code with it, so that one of them catches the other's
//! mistakes. Tests and the simulation call [`audit`] after every step; it reads the whole state, so a
//! live replica calls it seldom.

mod access;
mod attempt_events;
mod cells;
mod claims;
mod derived;
mod health;
mod hosts;
mod jobs;
mod logs;
mod members;
mod pipelines;
mod places;
mod units;
mod usage;

use std::fmt;

use crate::state::State;

/// Which invariant is broken (numbers as in `docs/invariants.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// I1: a GPU is held by one attempt, and attempts and GPUs agree about it.
    GpuExclusivity,
    /// I2: attempt epochs strictly increase and lie in the past.
    Epochs,
    /// I3: leadership epochs lie in the past.
    Leadership,
    /// I30: replicas that are written down are so once each, in order, and no id is above the highest that was ever used.
    Replicas,
    /// I5: answers are those of commands that took effect.
    Requests,
    /// I6: an attempt has all tasks of its unit.
    GangAtomicity,
    /// I7: phases fit each other.
    Lifecycle,
    /// I8: what is given out adds up and fits.
    Capacity,
    /// A claim and what it claims agree, and a GPU is claimed once.
    Claims,
    /// I17: cells are bound to one virtual cluster within its quota, and each can get what it is still owed.
    VirtualClusters,
    /// I19: hosts lie where the configuration says, else where their workers say and others agree; cells nest.
    Places,
    /// I8: a queue counts its unfinished jobs and what its work has.
    QueueUsage,
    /// I10: events are ordered, complete by revision and bounded.
    Events,
    /// I22: the events tell each attempt's life completely, in order and once.
    AttemptEvents,
    /// I11: what is derived equals what it is derived from.
    Derived,
    /// I13: nothing that lives is out of everybody's sight.
    Limbo,
    /// I14: the retry budget is kept.
    RetryBudget,
    /// I20: nothing of a job is placed before the jobs that it waits for have ended as they must.
    Dependencies,
    /// I21: the checkpoints that a unit may begin from are kept.
    Retention,
    /// I26: jobs of a pipeline were accepted together and wait for none after them.
    Pipelines,
    /// I28: health and placement say the same, and nothing runs where something is repaired or checked.
    Health,
    /// I32: users and join tokens are within their limits, and no token proves two users.
    Users,
    /// Names and keys lead to the things that bear them.
    Identity,
    /// Every list is within its limit.
    Limits,
}

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Which rule.
    pub rule: Rule,
    /// What breaks it: `job 7 unit 0`, `host 3`.
    pub subject: String,
    /// How.
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

/// All broken invariants of a state; empty if it is sound.
#[must_use]
pub fn audit(state: &State) -> Vec<Finding> {
    let mut report = Report::default();
    jobs::check(state, &mut report);
    hosts::check(state, &mut report);
    derived::check(state, &mut report);
    members::check_sight(state, &mut report);
    logs::check(state, &mut report);
    pipelines::check(state, &mut report);
    attempt_events::check(state, &mut report);
    usage::check(state, &mut report);
    claims::check(state, &mut report);
    places::check(state, &mut report);
    cells::check(state, &mut report);
    health::check(state, &mut report);
    access::check(state, &mut report);
    report.0
}

/// Findings so far.
#[derive(Default)]
struct Report(Vec<Finding>);

impl Report {
    /// Notes a finding unless `holds`.
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
