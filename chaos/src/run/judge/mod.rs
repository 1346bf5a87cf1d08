//! The judges: what users were told, watchers heard and tasks wrote down, held against the log and against the promises.

mod bystanders;
pub(super) mod checks;
mod journals;
pub(super) mod order;
mod progress;
pub(super) mod promptness;
mod severed;
pub(super) mod tasks;
pub(super) mod told;
mod untouched;
pub(super) mod watch;

use std::collections::BTreeMap;
use std::fmt;

use muster_model::ids::Revision;
use serde::Serialize;

use crate::run::book::Book;
use crate::run::history::Operation;
use crate::run::load::{Delivery, Heard};
use crate::run::nemesis::Episode;
use crate::run::report::FaultFigures;
use crate::run::truth::Truth;

pub(super) use bystanders::Displaced;
pub use checks::Check;
pub(super) use journals::Journal;

/// What must always hold; the numbers are those of `docs/invariants.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Invariant {
    /// I1: a GPU has one owner.
    Exclusivity,
    /// I2: a task runs in one attempt at a time, and epochs grow.
    OneAttempt,
    /// I3: what a leader proposes takes no effect once another leads.
    Fencing,
    /// I4, I5: what was acknowledged stays, once.
    Durability,
    /// I6: a gang runs in one attempt at a time.
    GangAtomicity,
    /// P4: the fault of a GPU takes out that GPU and displaces whoever held it, and nobody else.
    Bystanders,
    /// P1: what runs goes on while replicas die, stand still, come and go.
    Untouched,
    /// I8, I13 and more: the audit of the state.
    Audit,
    /// I9: reads and writes have one order, in which nothing goes back.
    Linearizability,
    /// I10: watchers hear everything, once, in order, whole.
    Watch,
    /// I11: replicas have the same log, and come to the same state by it.
    Agreement,
    /// L1, L2: what is lost is replaced soon.
    Promptness,
    /// L3: a leader that reaches no other replica says so, and answers nothing as done.
    Severed,
    /// L4, L5: what is repaired is whole again, and every job ends.
    Progress,
    /// L6: users do not notice a rolling restart.
    Orderly,
}

impl Invariant {
    /// Its number and name, for people.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Exclusivity => "I1 a GPU has one owner",
            Self::OneAttempt => "I2 one attempt at a time",
            Self::Fencing => "I3 old leaders change nothing",
            Self::Durability => "I4/I5 what was acknowledged stays, once",
            Self::GangAtomicity => "I6 a gang in one attempt",
            Self::Bystanders => "P4 a GPU's fault takes out that GPU, and nobody else",
            Self::Untouched => "P1 replicas' faults cost nobody its place",
            Self::Audit => "the state is sound",
            Self::Linearizability => "I9 one order of reads and writes",
            Self::Watch => "I10 watchers hear everything, once, in order",
            Self::Agreement => "I11 replicas agree",
            Self::Promptness => "L1/L2 what is lost is replaced soon",
            Self::Severed => "L3 a leader that is cut off says so, and answers nothing as done",
            Self::Progress => "L4/L5 the cluster heals and jobs end",
            Self::Orderly => "L6 no call fails in a rolling restart",
        }
    }
}

/// Something that must not have been.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Which invariant is broken.
    pub invariant: Invariant,
    /// What was seen, for people.
    pub text: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.invariant.words(), self.text)
    }
}

/// Everything that a run brought to light.
pub(super) struct Evidence {
    /// What users called, in the order of the answers.
    pub(super) operations: Vec<Operation>,
    /// What watchers heard; the first of them listens at all replicas.
    pub(super) heard: Vec<Heard>,
    /// When the last call had been answered, by the clock of the run: nobody wrote any more.
    pub(super) calls_until_us: u64,
    /// The newest revision when all jobs had ended; watchers were waited for until they had heard of it.
    pub(super) last: Revision,
    /// What tasks wrote down.
    pub(super) book: Book,
    /// The log.
    pub(super) truth: Truth,
    /// What agents wrote down; nothing where they are not ours.
    pub(super) journals: Vec<Journal>,
    /// The faults.
    pub(super) episodes: Vec<Episode>,
}

impl Evidence {
    /// What was heard by any watcher, when the first of them heard it.
    pub(super) fn earliest(&self) -> Heard {
        let mut first: BTreeMap<Revision, Delivery> = BTreeMap::new();
        for delivery in self.heard.iter().flat_map(|it| &it.deliveries) {
            let known = first.entry(delivery.revision);
            let known = known.or_insert_with(|| delivery.clone());
            known.at_us = known.at_us.min(delivery.at_us);
        }
        Heard {
            deliveries: first.into_values().collect(),
            ..Heard::default()
        }
    }
}

/// Everything that must not have been, by invariant; `figures` are those of every kind of fault.
pub(super) fn judge(evidence: &Evidence, figures: &[FaultFigures]) -> Vec<Violation> {
    let mut found = evidence.truth.violations.clone();
    found.extend(told::judge(&evidence.operations, &evidence.truth));
    found.extend(order::judge(&evidence.operations));
    found.extend(watch::judge(
        &evidence.heard,
        &evidence.truth,
        evidence.last,
    ));
    found.extend(tasks::judge(&evidence.book, &evidence.truth));
    found.extend(journals::judge(&evidence.journals, &evidence.truth));
    found.extend(bystanders::judge(evidence));
    found.extend(untouched::judge(evidence));
    found.extend(severed::judge(&evidence.episodes, &evidence.operations));
    found.extend(progress::judge(evidence));
    found.extend(promptness::judge(figures));
    found.sort_by_key(|violation| violation.invariant);
    found
}
