//! What a run comes to: a verdict, what it rests on, and how long everything took.

pub(super) mod coverage;
pub(super) mod figures;
mod files;
mod picture;
mod text;

use muster_model::ids::Revision;
use serde::Serialize;

use crate::cluster::NetworkKind;
use crate::run::Profile;
use crate::run::judge::{Check, Evidence, Violation, checks, judge};
use crate::run::options::RunOptions;
use crate::run::target::Grounds;

pub use coverage::Coverage;
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
    /// What stood between replicas and hosts, in a cluster of our own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkKind>,
    /// Version of the program that was tested.
    pub version: &'static str,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// What must not have been.
    pub violations: Vec<Violation>,
    /// Why it proves nothing, if so.
    pub invalid: Vec<String>,
    /// How much each promise was put to the test.
    pub checks: Vec<Check>,
    /// What every kind of fault cost.
    pub faults: Vec<FaultFigures>,
    /// What the verdict rests on.
    pub coverage: Vec<Coverage>,
    /// Whose cluster it was and what was allowed, where it was not one of our own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grounds: Option<Grounds>,
    /// The command that does it again.
    pub again: String,
}

/// What was asked of a run.
pub(super) struct Asked {
    /// The profile.
    pub(super) profile: &'static str,
    /// Draws.
    pub(super) seed: u64,
    /// How often each fault was to be made.
    pub(super) repetitions: u32,
    /// The command that does it again.
    pub(super) again: String,
}

/// What the judges say.
pub(super) struct Judged {
    /// What must not have been.
    pub(super) violations: Vec<Violation>,
    /// How much each promise was put to the test.
    pub(super) checks: Vec<Check>,
    /// What the verdict rests on.
    pub(super) coverage: Vec<Coverage>,
    /// What else is missing for it to prove anything.
    pub(super) invalid: Vec<String>,
}

impl RunReport {
    /// Judges and counts a run on a cluster of our own.
    pub(super) fn of(options: &RunOptions, evidence: &Evidence, span_us: (u64, u64)) -> Self {
        let mut invalid = Vec::new();
        if options.profile != Profile::SnapshotStorm && evidence.truth.base > Revision(0) {
            invalid.push(format!(
                "the log begins at revision {}: what was before cannot be judged",
                evidence.truth.base
            ));
        }
        let asked = Asked {
            profile: options.profile.name(),
            seed: options.seed,
            repetitions: options.repetitions,
            again: again(options),
        };
        let faults = figures::of_faults(evidence, span_us.1);
        let violations = judge(evidence, &faults);
        let judged = Judged {
            checks: Check::all(checks::judged(evidence, &faults), &violations),
            violations,
            coverage: coverage::of(evidence),
            invalid,
        };
        Self {
            network: Some(options.network),
            ..Self::drawn_up(asked, judged, faults, span_us)
        }
    }

    /// Comes to a verdict, with the figures of every kind of fault.
    pub(super) fn drawn_up(
        asked: Asked,
        judged: Judged,
        faults: Vec<FaultFigures>,
        (from_us, to_us): (u64, u64),
    ) -> Self {
        let Judged {
            violations,
            checks,
            coverage,
            invalid: others,
        } = judged;
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
        let made = usize::try_from(asked.repetitions).unwrap_or(usize::MAX);
        let missing = faults.iter().filter(|it| it.made < made);
        invalid.extend(missing.map(|it| {
            let (what, count) = (it.fault.words(), it.made);
            let (load, effect) = (it.without_load, it.without_effect);
            format!(
                "{what}: made {count} of {made} times, {load} without load, {effect} without effect"
            )
        }));
        invalid.extend(others);
        let verdict = match (violations.is_empty(), invalid.is_empty()) {
            (false, _) => Verdict::Rejected,
            (true, false) => Verdict::Invalid,
            (true, true) => Verdict::Accepted,
        };
        Self {
            verdict,
            profile: asked.profile,
            seed: asked.seed,
            repetitions: asked.repetitions,
            network: None,
            version: env!("CARGO_PKG_VERSION"),
            seconds: (to_us - from_us) as f64 / 1e6,
            violations,
            invalid,
            checks,
            faults,
            coverage,
            grounds: None,
            again: asked.again,
        }
    }

    /// Whether everything held, and that proves something.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.verdict == Verdict::Accepted
    }
}

/// The command that makes the same run: the same draws, at other times.
fn again(options: &RunOptions) -> String {
    let (profile, seed) = (options.profile.name(), options.seed);
    let repetitions = options.repetitions;
    let network = options.network.name();
    let mut words = format!(
        "muster chaos run --profile {profile} --network {network} --seed {seed} --repetitions {repetitions}"
    );
    if let Some(previous) = &options.previous {
        words.push_str(&format!(" --previous {}", previous.display()));
    }
    words
}
