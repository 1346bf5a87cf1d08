//! Report of a run: verdict, evidence and measurements.

pub(super) mod coverage;
mod files;
pub(super) mod measurements;
mod picture;
mod text;

use muster_model::ids::Revision;
use serde::Serialize;

use crate::cluster::NetworkKind;
use crate::run::Profile;
use crate::run::checkers::{Check, Evidence, Violation, checks, judge};
use crate::run::clock::RunSpan;
use crate::run::external::TargetInfo;
use crate::run::options::RunOptions;

pub use coverage::Coverage;
pub(super) use files::write;
pub use measurements::{Distribution, FaultMeasurements};

/// Verdict on a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Every invariant held, under faults and load that tested it.
    Accepted,
    /// An invariant was violated.
    Rejected,
    /// The run proves nothing, one way or the other.
    Invalid,
}

impl Verdict {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
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
    /// The seed.
    pub seed: u64,
    /// Number of injections of each fault.
    pub repetitions: u32,
    /// Network between replicas and hosts; `None` for an external cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkKind>,
    /// Version of the tested program.
    pub version: &'static str,
    /// Duration in seconds.
    pub seconds: f64,
    /// Violations of invariants.
    pub violations: Vec<Violation>,
    /// Reasons why the run proves nothing, if any.
    pub invalid: Vec<String>,
    /// Amount of evidence for each invariant.
    pub checks: Vec<Check>,
    /// Measurements of every kind of fault.
    pub faults: Vec<FaultMeasurements>,
    /// Counts of the evidence.
    pub coverage: Vec<Coverage>,
    /// Target and permissions of a run on an external cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grounds: Option<TargetInfo>,
    /// Command that repeats the run.
    pub again: String,
}

/// Parameters of a run.
pub(super) struct RunParameters {
    /// The profile.
    pub(super) profile: &'static str,
    /// The seed.
    pub(super) seed: u64,
    /// Number of injections of each fault.
    pub(super) repetitions: u32,
    /// Command that repeats the run.
    pub(super) again: String,
}

/// Results of the checkers.
pub(super) struct CheckResults {
    /// Violations of invariants.
    pub(super) violations: Vec<Violation>,
    /// Amount of evidence for each invariant.
    pub(super) checks: Vec<Check>,
    /// Counts of the evidence.
    pub(super) coverage: Vec<Coverage>,
    /// Other reasons why the run proves nothing.
    pub(super) invalid: Vec<String>,
}

impl RunReport {
    /// Checks a run on a cluster that it started itself.
    pub(super) fn of(options: &RunOptions, evidence: &Evidence, span: RunSpan) -> Self {
        let mut invalid = Vec::new();
        if options.profile != Profile::SnapshotStorm && evidence.log.base > Revision(0) {
            invalid.push(format!(
                "the log begins at revision {}: earlier revisions cannot be checked",
                evidence.log.base
            ));
        }
        let asked = RunParameters {
            profile: options.profile.name(),
            seed: options.seed,
            repetitions: options.repetitions,
            again: again(options),
        };
        let faults = measurements::of_faults(evidence, span.to_us);
        let violations = judge(evidence, &faults);
        let judged = CheckResults {
            checks: Check::all(checks::judged(evidence, &faults), &violations),
            violations,
            coverage: coverage::of(evidence),
            invalid,
        };
        Self {
            network: Some(options.network),
            ..Self::drawn_up(asked, judged, faults, span)
        }
    }

    /// Derives the verdict, with the measurements of every kind of fault.
    pub(super) fn drawn_up(
        asked: RunParameters,
        judged: CheckResults,
        faults: Vec<FaultMeasurements>,
        span: RunSpan,
    ) -> Self {
        let CheckResults {
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
            let (what, count) = (it.fault.name(), it.made);
            let (load, effect) = (it.without_load, it.without_effect);
            format!(
                "{what}: injected {count} of {made} times, {load} without load, {effect} without effect"
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
            seconds: (span.to_us - span.from_us) as f64 / 1e6,
            violations,
            invalid,
            checks,
            faults,
            coverage,
            grounds: None,
            again: asked.again,
        }
    }

    /// Whether every invariant held and the run is valid.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.verdict == Verdict::Accepted
    }
}

/// The command that repeats the run: with the same random draws, at other times.
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
