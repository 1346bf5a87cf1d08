//! Checkers of a run: compare the users' history, the watchers' events and the tasks' records with the log
//! and the invariants.

pub(super) mod checks;
pub(super) mod durability;
mod gpu_fault_isolation;
mod isolated_leader;
mod journals;
pub(super) mod linearizability;
mod progress;
pub(super) mod promptness;
mod task_continuity;
pub(super) mod tasks;
pub(super) mod watch;

use std::collections::BTreeMap;
use std::fmt;

use muster_model::ids::Revision;
use serde::Serialize;

use crate::run::history::Operation;
use crate::run::load::{Delivery, WatchedEvents};
use crate::run::lock_ledger::LockLedger;
use crate::run::nemesis::Episode;
use crate::run::replay::ReplayedLog;
use crate::run::report::FaultMeasurements;

pub use checks::Check;
pub(super) use gpu_fault_isolation::Displaced;
pub(super) use journals::Journal;

/// Invariants; the numbers are those of `docs/invariants.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Invariant {
    /// I1: a GPU has one owner.
    Exclusivity,
    /// I2: a task runs in one attempt at a time, and epochs grow.
    OneAttempt,
    /// I3: proposals of a deposed leader take no effect.
    Fencing,
    /// I4, I5: acknowledged writes persist, exactly once.
    Durability,
    /// I6: a gang runs in one attempt at a time.
    GangAtomicity,
    /// P4: a GPU fault takes that GPU out of placement and displaces only its holder.
    GpuFaultIsolation,
    /// P1: running tasks continue while replicas are killed, paused, added and removed.
    TaskContinuity,
    /// I8, I13 and more: the audit of the state.
    Audit,
    /// I9: reads and writes have one order consistent with real time.
    Linearizability,
    /// I10: watchers receive every event once, in order, with all events of a revision together.
    Watch,
    /// I11: replicas have the same log, and come to the same state by it.
    Agreement,
    /// L1, L2: lost leaders and tasks are replaced promptly.
    Promptness,
    /// L3: a leader that reaches no other replica reports it and acknowledges nothing.
    IsolatedLeader,
    /// L4, L5: the cluster recovers after repair, and every job ends.
    Progress,
    /// L6: users do not notice a rolling restart.
    GracefulRestart,
}

impl Invariant {
    /// Its number and name for reports.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Exclusivity => "I1 a GPU has one owner",
            Self::OneAttempt => "I2 one attempt at a time",
            Self::Fencing => "I3 old leaders change nothing",
            Self::Durability => "I4/I5 acknowledged writes persist, once",
            Self::GangAtomicity => "I6 a gang in one attempt",
            Self::GpuFaultIsolation => "P4 a GPU fault affects only that GPU and its holder",
            Self::TaskContinuity => "P1 replica faults displace no task",
            Self::Audit => "the state is sound",
            Self::Linearizability => "I9 one order of reads and writes",
            Self::Watch => "I10 watchers receive every event, once, in order",
            Self::Agreement => "I11 replicas agree",
            Self::Promptness => "L1/L2 lost leaders and tasks are replaced promptly",
            Self::IsolatedLeader => "L3 an isolated leader reports it and acknowledges nothing",
            Self::Progress => "L4/L5 the cluster heals and jobs end",
            Self::GracefulRestart => "L6 no call fails in a rolling restart",
        }
    }
}

/// A violation of an invariant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The violated invariant.
    pub invariant: Invariant,
    /// Description of the observation.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.invariant.words(), self.text)
    }
}

/// Evidence collected by a run.
pub(super) struct Evidence {
    /// The users' calls, in the order of completion.
    pub(super) operations: Vec<Operation>,
    /// Events received by each watcher; the first watcher listens at all replicas.
    pub(super) watched: Vec<WatchedEvents>,
    /// Time of the last answer, by the clock of the run: no writes after it.
    pub(super) calls_until_us: u64,
    /// Newest revision when all jobs had ended; each watcher was awaited up to it.
    pub(super) last: Revision,
    /// The GPU ledger of the tasks.
    pub(super) ledger: LockLedger,
    /// The replayed log.
    pub(super) log: ReplayedLog,
    /// Journals of the agents; empty for an external cluster.
    pub(super) journals: Vec<Journal>,
    /// The injected faults.
    pub(super) episodes: Vec<Episode>,
}

impl Evidence {
    /// Union of the events of all watchers, each with the earliest time of receipt.
    pub(super) fn earliest(&self) -> WatchedEvents {
        let mut first: BTreeMap<Revision, Delivery> = BTreeMap::new();
        for delivery in self.watched.iter().flat_map(|it| &it.deliveries) {
            let known = first.entry(delivery.revision);
            let known = known.or_insert_with(|| delivery.clone());
            known.at_us = known.at_us.min(delivery.at_us);
        }
        WatchedEvents {
            deliveries: first.into_values().collect(),
            ..WatchedEvents::default()
        }
    }
}

/// Returns all violations, by invariant; `figures` are those of every kind of fault.
pub(super) fn judge(evidence: &Evidence, figures: &[FaultMeasurements]) -> Vec<Violation> {
    let mut found = evidence.log.violations.clone();
    found.extend(durability::judge(&evidence.operations, &evidence.log));
    found.extend(linearizability::judge(&evidence.operations));
    found.extend(watch::judge(
        &evidence.watched,
        &evidence.log,
        evidence.last,
    ));
    found.extend(tasks::judge(&evidence.ledger, &evidence.log));
    found.extend(journals::judge(&evidence.journals, &evidence.log));
    found.extend(gpu_fault_isolation::judge(evidence));
    found.extend(task_continuity::judge(evidence));
    found.extend(isolated_leader::judge(
        &evidence.episodes,
        &evidence.operations,
    ));
    found.extend(progress::judge(evidence));
    found.extend(promptness::judge(figures));
    found.sort_by_key(|violation| violation.invariant);
    found
}
