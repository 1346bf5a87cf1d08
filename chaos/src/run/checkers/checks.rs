//! Coverage of the checkers: amount of evidence for each invariant.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::run::checkers::gpu_fault_isolation::Displaced;
use crate::run::checkers::progress::orderly;
use crate::run::checkers::{
    Evidence, Invariant, Violation, isolated_leader, promptness, task_continuity,
};
use crate::run::lock_ledger::LockLedger;
use crate::run::report::FaultMeasurements;

/// Evidence for one invariant and the number of its violations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The invariant.
    pub invariant: Invariant,
    /// Amount of evidence.
    pub judged: usize,
    /// Unit of the evidence.
    pub what: &'static str,
    /// Number of violations.
    pub violations: usize,
}

/// An invariant, the amount of its evidence, and the unit.
pub(in crate::run) type Judged = (Invariant, usize, &'static str);

impl Check {
    /// One row for each checked invariant.
    pub(in crate::run) fn all(
        judged: impl IntoIterator<Item = Judged>,
        violations: &[Violation],
    ) -> Vec<Self> {
        let of = |invariant| {
            let broken = violations.iter().filter(|it| it.invariant == invariant);
            broken.count()
        };
        let rows = judged.into_iter().map(|(invariant, judged, what)| Self {
            invariant,
            judged,
            what,
            violations: of(invariant),
        });
        rows.collect()
    }
}

/// Evidence from a cluster started by this run.
pub(in crate::run) fn judged(evidence: &Evidence, figures: &[FaultMeasurements]) -> Vec<Judged> {
    let truth = &evidence.log;
    let count = |count: u64| usize::try_from(count).unwrap_or(usize::MAX);
    let leaders: usize = evidence.journals.iter().map(|it| it.leaders()).sum();
    let starts: usize = evidence.journals.iter().map(|it| it.starts()).sum();
    let [locks, runs, gangs] = of_ledger(&evidence.ledger);
    vec![
        (Invariant::Exclusivity, locks, "GPUs that tasks locked"),
        (
            Invariant::OneAttempt,
            runs + starts,
            "task runs, from the GPU ledger and the agents' journals",
        ),
        (
            Invariant::Fencing,
            count(truth.stale) + leaders,
            "commands of old leaders, and leaders in agents' journals",
        ),
        (Invariant::Durability, writes(evidence), WRITES),
        (Invariant::GangAtomicity, gangs, GANGS),
        (
            Invariant::GpuFaultIsolation,
            displaced(evidence),
            "units displaced by a GPU fault",
        ),
        (
            Invariant::TaskContinuity,
            task_continuity::judged(evidence),
            "replica faults during which users were answered all the time",
        ),
        (
            Invariant::Audit,
            count(truth.audits),
            "inspections of the whole state",
        ),
        (
            Invariant::Linearizability,
            count(truth.reads + truth.writes),
            "answers, compared with each other and with the log",
        ),
        (Invariant::Watch, deliveries(evidence), DELIVERIES),
        (
            Invariant::Agreement,
            count(truth.compared + truth.states),
            "log entries and states of replicas",
        ),
        (
            Invariant::Promptness,
            promptness::judged(figures),
            "medians of five faults or more",
        ),
        (
            Invariant::IsolatedLeader,
            isolated_leader::judged(&evidence.episodes, &evidence.operations),
            "calls while a leader was isolated but reachable by clients",
        ),
        (
            Invariant::Progress,
            evidence.episodes.len() + truth.state.jobs.len(),
            "repairs, and jobs at the end",
        ),
        (
            Invariant::GracefulRestart,
            orderly(&evidence.episodes, &evidence.operations).len(),
            "calls while replicas and agents were replaced gracefully",
        ),
    ]
}

/// Amount of evidence in the events that watchers of an external cluster received.
#[derive(Clone, Copy, Default)]
pub(in crate::run) struct EventCounts {
    /// Attempts in events.
    pub(in crate::run) attempts: usize,
    /// Leaders in events.
    pub(in crate::run) leaders: usize,
    /// Reads compared with events.
    pub(in crate::run) reads: usize,
}

/// Evidence from an external cluster, where the run had this number of jobs.
pub(in crate::run) fn judged_outside(
    evidence: &Evidence,
    counts: EventCounts,
    jobs: usize,
) -> Vec<Judged> {
    let [locks, runs, gangs] = of_ledger(&evidence.ledger);
    let by_tasks = [
        (Invariant::Exclusivity, locks, "GPUs that tasks locked"),
        (Invariant::GangAtomicity, gangs, GANGS),
    ];
    let mut judged = vec![
        (
            Invariant::OneAttempt,
            counts.attempts + runs,
            "attempts in events, and task runs in the GPU ledger",
        ),
        (Invariant::Fencing, counts.leaders, "leaders in events"),
        (Invariant::Durability, writes(evidence), WRITES),
        (
            Invariant::Linearizability,
            answers(evidence) + counts.reads,
            "answers compared with each other, and reads compared with events",
        ),
        (Invariant::Watch, deliveries(evidence), DELIVERIES),
        (
            Invariant::Progress,
            evidence.episodes.len() + jobs,
            "injected faults, and jobs of the run",
        ),
    ];
    judged.extend(by_tasks.into_iter().filter(|(_, count, _)| *count > 0));
    judged.sort_by_key(|(invariant, ..)| *invariant);
    judged
}

const WRITES: &str = "answered submissions and cancels";
const GANGS: &str = "attempts of several tasks, from the GPU ledger";
const DELIVERIES: &str = "revisions with events, sent to a watcher";

/// Number of locked GPUs, of task runs, and of attempts with several tasks.
fn of_ledger(ledger: &LockLedger) -> [usize; 3] {
    let mut members: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    let runs = ledger.holdings.iter().filter(|it| it.gpu.is_none());
    for run in runs.clone() {
        members.entry(run.epoch).or_default().insert(run.task);
    }
    let runs = runs.count();
    let gangs = members.values().filter(|tasks| tasks.len() > 1).count();
    [ledger.holdings.len() - runs, runs, gangs]
}

fn writes(evidence: &Evidence) -> usize {
    evidence
        .operations
        .iter()
        .filter(|it| it.is_write())
        .count()
}

fn answers(evidence: &Evidence) -> usize {
    let operations = evidence.operations.iter();
    operations.filter(|it| it.answer().is_some()).count()
}

fn deliveries(evidence: &Evidence) -> usize {
    evidence.watched.iter().map(|it| it.deliveries.len()).sum()
}

fn displaced(evidence: &Evidence) -> usize {
    let watched = evidence.earliest();
    let episodes = evidence.episodes.iter();
    let displaced = episodes.map(|it| Displaced::by(it, &watched, &evidence.log.grants));
    displaced.map(|it| it.holders + it.bystanders.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_that_was_not_broken_says_so() {
        let broken = Violation {
            invariant: Invariant::Watch,
            text: String::new(),
        };
        let judged = [
            (Invariant::Watch, 9, DELIVERIES),
            (Invariant::Audit, 4, "looks"),
        ];
        let checks = Check::all(judged, &[broken.clone(), broken]);
        let counts: Vec<_> = checks.iter().map(|it| (it.judged, it.violations)).collect();
        assert_eq!(counts, [(9, 2), (4, 0)]);
    }
}
