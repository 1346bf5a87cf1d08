//! What a run comes to: a verdict, what it rests on, and how long everything took.

mod figures;
mod files;
mod picture;
mod text;

use std::collections::BTreeMap;

use muster_core::event::EventKind;
use muster_core::lifecycle::JobPhase;
use serde::Serialize;

use super::history::{Call, Outcome};
use super::judge::{Evidence, Violation, judge};
use super::options::RunOptions;

pub use figures::{FaultFigures, Spread};
pub(super) use files::write;

/// What is to be thought of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Everything that was promised held, under faults and load that put it to the test.
    Accepted,
    /// Something that was promised did not hold.
    Rejected,
    /// The run proves nothing, one way or the other.
    Invalid,
}

impl Verdict {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Rejected => "REJECTED",
            Self::Invalid => "INVALID",
        }
    }
}

/// Something that was counted, and how often it must be there at least for the run to prove anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// What.
    pub what: &'static str,
    /// How often.
    pub count: u64,
    /// How often at least.
    pub at_least: u64,
}

/// The whole report.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// The verdict.
    pub verdict: Verdict,
    /// The profile.
    pub profile: &'static str,
    /// The seed, and the repetitions of each fault.
    pub seed: u64,
    /// How often each fault was made.
    pub repetitions: u32,
    /// Version of the program that was tested.
    pub version: &'static str,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// What must not have been.
    pub violations: Vec<Violation>,
    /// Why it proves nothing, if so.
    pub invalid: Vec<String>,
    /// What every kind of fault cost.
    pub faults: Vec<FaultFigures>,
    /// What the verdict rests on.
    pub coverage: Vec<Coverage>,
    /// The command that does it again.
    pub again: String,
}

impl RunReport {
    /// Judges and counts.
    pub(super) fn of(
        options: &RunOptions,
        evidence: &Evidence,
        (from_us, to_us): (u64, u64),
    ) -> Self {
        let violations = judge(evidence);
        let faults = figures::of_faults(evidence);
        let coverage = coverage(evidence);
        let mut invalid: Vec<String> = coverage
            .iter()
            .filter(|it| it.count < it.at_least)
            .map(|it| {
                format!(
                    "{}: {}, at least {} are needed",
                    it.what, it.count, it.at_least
                )
            })
            .collect();
        let loadless = faults.iter().filter(|it| it.made == 0);
        invalid.extend(
            loadless.map(|it| format!("{}: never made under enough load", it.fault.words())),
        );
        let verdict = match (violations.is_empty(), invalid.is_empty()) {
            (false, _) => Verdict::Rejected,
            (true, false) => Verdict::Invalid,
            (true, true) => Verdict::Accepted,
        };
        let (profile, seed) = (options.profile.name(), options.seed);
        let repetitions = options.repetitions;
        Self {
            verdict,
            profile,
            seed,
            repetitions,
            version: env!("CARGO_PKG_VERSION"),
            seconds: (to_us - from_us) as f64 / 1e6,
            violations,
            invalid,
            faults,
            coverage,
            again: format!(
                "muster chaos run --profile {profile} --seed {seed} --repetitions {repetitions}"
            ),
        }
    }

    /// Whether everything held, and that proves something.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.verdict == Verdict::Accepted
    }
}

fn coverage(evidence: &Evidence) -> Vec<Coverage> {
    let Evidence {
        operations,
        heard,
        book,
        truth,
        episodes,
    } = evidence;
    let count_of = |wanted: &dyn Fn(&Outcome) -> bool| {
        operations.iter().filter(|it| wanted(&it.outcome)).count()
    };
    let earliest = evidence.earliest();
    let leaders = figures::kinds_since(&earliest, 0);
    let leaders = leaders.filter(|(_, kind)| matches!(kind, EventKind::LeaderBegan { .. }));
    let hits = episodes.iter().filter(|it| it.fault.ends_leadership());
    let in_phase = |phase| {
        truth
            .state
            .jobs
            .values()
            .filter(|job| job.phase == phase)
            .count()
    };
    let gpus = book.holdings.iter().filter(|it| it.gpu.is_some());
    let killed = book
        .holdings
        .iter()
        .filter(|it| it.gpu.is_none() && it.given_us.is_none());
    let displacing = episodes.iter().filter(|it| it.fault.displaces()).count();
    let resumed: u64 = heard.iter().map(|it| u64::from(it.resumed)).sum();
    let hit = u64::from(hits.clone().count() > 0);
    let rows: [(&str, u64, u64); 14] = [
        (
            "calls that were answered",
            count_of(&|it| matches!(it, Outcome::Done(_))) as u64,
            1,
        ),
        (
            "calls that were refused",
            count_of(&|it| matches!(it, Outcome::Refused(_))) as u64,
            0,
        ),
        (
            "calls of which nobody knows",
            count_of(&|it| matches!(it, Outcome::Unknown(_))) as u64,
            0,
        ),
        ("requests that were sent twice at once", twice(evidence), 1),
        (
            "jobs that succeeded",
            in_phase(JobPhase::Succeeded) as u64,
            1,
        ),
        (
            "jobs that were cancelled",
            in_phase(JobPhase::Cancelled) as u64,
            1,
        ),
        ("GPUs that tasks locked", gpus.count() as u64, 1),
        (
            "tasks that ended without a word",
            killed.count() as u64,
            u64::from(displacing > 0),
        ),
        ("leaderships", leaders.count() as u64, 1 + hit),
        ("commands of old leaders, refused", truth.stale, 0),
        ("streams that were cut off and went on", resumed, hit),
        ("commands applied again", truth.commands, 1),
        ("log entries compared between replicas", truth.compared, 1),
        ("reads compared with the log", truth.reads, 1),
    ];
    rows.into_iter()
        .map(|(what, count, at_least)| Coverage {
            what,
            count,
            at_least,
        })
        .collect()
}

/// Requests that were answered more than once.
fn twice(evidence: &Evidence) -> u64 {
    let mut answers: BTreeMap<_, u64> = BTreeMap::new();
    for operation in &evidence.operations {
        if let (Call::Submit(request), Some(_)) = (operation.call, operation.answer()) {
            *answers.entry(request).or_default() += 1;
        }
    }
    answers.values().filter(|count| **count > 1).count() as u64
}
