//! Coverage of a run: counts of the evidence that the checkers need.

use std::collections::BTreeMap;

use muster_model::event::EventKind;
use muster_model::lifecycle::JobPhase;
use serde::Serialize;

use crate::cluster::Fault;
use crate::run::checkers::Evidence;
use crate::run::history::{Call, Outcome};
use crate::run::options::REPLICAS;

/// A count, and the minimum for the run to prove anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// Description.
    pub what: &'static str,
    /// The count.
    pub count: u64,
    /// Required minimum.
    pub at_least: u64,
}

/// Computes all counts.
pub(super) fn of(evidence: &Evidence) -> Vec<Coverage> {
    let rows = of_calls(evidence).into_iter().chain(of_work(evidence));
    let rows = rows.chain(of_streams(evidence)).chain(of_log(evidence));
    rows.map(|(what, count, at_least)| Coverage {
        what,
        count: count as u64,
        at_least,
    })
    .collect()
}

/// Used for both kinds of run.
pub(in crate::run) const GAPS_REPORTED: &str = "gaps reported to watchers";

/// Description, count, and required minimum.
pub(in crate::run) type Row = (&'static str, usize, u64);

pub(in crate::run) fn of_calls(evidence: &Evidence) -> [Row; 4] {
    let count = |wanted: fn(&Outcome) -> bool| {
        let operations = evidence.operations.iter();
        operations.filter(|it| wanted(&it.outcome)).count()
    };
    let mut answers: BTreeMap<_, usize> = BTreeMap::new();
    for operation in &evidence.operations {
        if let (Call::Submit(request), Some(_)) = (operation.call, operation.answer()) {
            *answers.entry(request).or_default() += 1;
        }
    }
    let twice = answers.values().filter(|count| **count > 1).count();
    let done = count(|it| matches!(it, Outcome::Done(_)));
    let refused = count(|it| matches!(it, Outcome::Refused(_)));
    let unknown = count(|it| matches!(it, Outcome::Unknown(_)));
    [
        ("answered calls", done, 1),
        ("refused calls", refused, 0),
        ("calls with unknown outcome", unknown, 0),
        ("requests sent twice concurrently", twice, 1),
    ]
}

fn of_work(evidence: &Evidence) -> [Row; 4] {
    let in_phase = |phase| {
        let jobs = evidence.log.state.jobs.values();
        jobs.filter(|job| job.phase == phase).count()
    };
    let holdings = &evidence.ledger.holdings;
    let gpus = holdings.iter().filter(|it| it.gpu.is_some()).count();
    let tasks = holdings.iter().filter(|it| it.gpu.is_none());
    let killed = tasks.filter(|it| it.given_us.is_none()).count();
    [
        ("jobs that succeeded", in_phase(JobPhase::Succeeded), 1),
        ("jobs that were cancelled", in_phase(JobPhase::Cancelled), 1),
        ("GPUs that tasks locked", gpus, 1),
        ("tasks that ended without releasing their locks", killed, 0),
    ]
}

fn of_streams(evidence: &Evidence) -> [Row; 4] {
    let watched = &evidence.watched;
    let earliest = evidence.earliest();
    let leaders = earliest.kinds_since(0);
    let leaders = leaders.filter(|(_, kind)| matches!(kind, EventKind::LeadershipStarted { .. }));
    let resumed = watched.iter().map(|it| it.resumed as usize).sum();
    let delivered: usize = watched.iter().map(|it| it.deliveries.len()).sum();
    let gaps: usize = watched.iter().map(|it| it.gaps.len()).sum();
    let mut faults = evidence.episodes.iter().map(|it| it.fault);
    let is_cut = u64::from(faults.any(Fault::cuts_clients_off));
    [
        ("leaderships", leaders.count(), 1),
        ("revisions with events, sent to a watcher", delivered, 1),
        ("streams interrupted and resumed", resumed, is_cut),
        (GAPS_REPORTED, gaps, 0),
    ]
}

fn of_log(evidence: &Evidence) -> [Row; 6] {
    let truth = &evidence.log;
    let counts = [truth.commands, truth.stale, truth.compared, truth.states];
    let [commands, stale, compared, states] = counts.map(|count| count as usize);
    let [reads, writes] = [truth.reads, truth.writes].map(|count| count as usize);
    let replicas = REPLICAS as u64;
    [
        ("commands replayed", commands, 1),
        ("commands of old leaders, refused", stale, 0),
        ("log entries compared between replicas", compared, 1),
        ("states of replicas compared with the log", states, replicas),
        ("reads compared with the log", reads, 1),
        ("writes compared with the log", writes, 1),
    ]
}
