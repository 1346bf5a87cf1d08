//! Active check of a GPU: the measuring program, and the evaluation of its metrics by the rules.
//!
//! A metric counts against a GPU only if it is too low several times in a row, and an ordered check is one
//! run: so the check is repeated until that is decided. A metric that is too low often enough fails the
//! check, regardless of the program's exit code.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use muster_health::checks::{self, CheckEnd, Dialect};
use muster_health::rules::{Condition, Hold, Mode, RuleSet};
use muster_model::command::GpuDescription;
use muster_model::health::Component;

use crate::health::program::{ProgramResult, run};
use crate::health::repairs::{ACTIVE_CHECK, CheckParameters, Outcome, RepairExecutor};
use crate::health::{HealthConfig, Observation, Sample};
use crate::limits::{HEALTH_ACTIVE_CHECK_MAX, HEALTH_ACTIVE_CHECK_RUNS_MAX};

/// The rule about wrong computation results.
pub(super) const MISCOMPARE: &str = "miscompare";
/// Its metric, printed by the check behind `|` as Nagios plugins do.
pub(super) const MISCOMPARES: &str = "miscompares";
/// Further metrics that the check may print, and the rules that use them.
const FIGURES: [(&str, &str); 4] = [
    ("baseline_permille", ACTIVE_CHECK),
    ("gb_per_s", BANDWIDTH),
    ("from_gb_per_s", BANDWIDTH),
    ("peer_gb_per_s", PEER_BANDWIDTH),
];
/// The rule about bandwidth between GPUs and their host.
const BANDWIDTH: &str = "h2d_bw";
/// The rule about bandwidth between GPUs.
const PEER_BANDWIDTH: &str = "peer_bw";
/// Number of peers that a GPU reaches directly.
const PEERS_DIRECT: &str = "peers_direct";
/// Number of peers that it reaches only through the host: the metric of its rule.
const PEERS_INDIRECT: &str = "peers_indirect";
/// Placeholder for the GPUs that are checked together with this one.
const PEERS: &str = "{peers}";
/// Placeholder for the measuring time in seconds.
const SECONDS: &str = "{seconds}";
/// Measuring time by default, and after repeated failures.
const SECONDS_QUICK: &str = "10";
const SECONDS_THOROUGH: &str = "60";
/// The program that ships with Muster.
const SHIPPED: &str = "muster-gpu-check";
/// Its exit code if it could not check, for example because a library is missing.
const NOT_CHECKED: i32 = 3;
/// Setting that disables the active check.
const OFF: &str = "off";

/// The program that checks GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Checker {
    /// Empty for none.
    command: Vec<String>,
    /// Whether the site configured it. The default program need not be able to check: then it does not fail
    /// the GPU.
    is_named: bool,
}

impl Checker {
    /// The configured program; else the one that ships, if it is installed and the GPUs are real.
    pub(super) fn of(config: &HealthConfig, is_simulated: bool, shipped: &Path) -> Self {
        let named = &config.active_check;
        if named.first().is_some_and(|word| word == OFF) {
            return Self::default();
        }
        if !named.is_empty() {
            return Self {
                command: named.clone(),
                is_named: true,
            };
        }
        if is_simulated || !shipped.is_file() {
            return Self::default();
        }
        let program = shipped.display().to_string();
        let arguments = [&program, "{uuid}", "--peers", PEERS, "--seconds", SECONDS];
        Self {
            command: arguments.map(str::to_owned).to_vec(),
            is_named: false,
        }
    }
}

/// Path of the program that ships: beside this one.
pub(super) fn shipped_beside_this() -> PathBuf {
    let this = std::env::current_exe().unwrap_or_default();
    this.with_file_name(SHIPPED)
}

/// Result of one run of the check.
struct CheckResult {
    outcome: Outcome,
    low: Option<LowMetric>,
}

/// A metric that is too low by a rule.
#[derive(Debug, PartialEq, Eq)]
struct LowMetric {
    figure: String,
    value: i64,
    rule: String,
    condition: String,
    is_fatal: bool,
    /// Number of times in a row that it must be too low to count.
    times: u32,
}

impl RepairExecutor {
    /// Runs the active check, if there is one, for one of the GPUs that are checked together: no task runs
    /// on any of them.
    pub(super) async fn active_check(
        &self,
        gpu: &GpuDescription,
        together: &[&GpuDescription],
        course: CheckParameters,
    ) -> Option<Outcome> {
        let mut measured = self.measure(gpu, together, course).await?;
        for run in 1..HEALTH_ACTIVE_CHECK_RUNS_MAX {
            let is_open = measured.low.as_ref().is_some_and(|low| low.times > run);
            if !measured.outcome.0 || !is_open {
                break;
            }
            measured = self.measure(gpu, together, course).await?;
        }
        let fails = measured.low.filter(|low| low.is_fatal);
        let (passed, evidence) = measured.outcome;
        Some(match fails {
            Some(low) if passed => {
                let LowMetric {
                    figure,
                    value,
                    rule,
                    condition,
                    ..
                } = low;
                let evidence =
                    format!("{figure} is {value} (rule {rule}: {condition}); {evidence}");
                (false, evidence)
            }
            _ => (passed, evidence),
        })
    }

    /// Runs the check once and reports its metrics.
    async fn measure(
        &self,
        gpu: &GpuDescription,
        together: &[&GpuDescription],
        course: CheckParameters,
    ) -> Option<CheckResult> {
        let checker = &self.0.checker;
        let command = self.of_gpu(&checker.command, gpu);
        let peers: Vec<String> = together
            .iter()
            .filter(|peer| peer.uuid != gpu.uuid)
            .map(|peer| peer.uuid.to_string())
            .collect();
        let seconds = if course.is_thorough {
            SECONDS_THOROUGH
        } else {
            SECONDS_QUICK
        };
        let fill = |argument: &String| {
            let argument = argument.replace(PEERS, &peers.join(","));
            argument.replace(SECONDS, seconds)
        };
        let command: Vec<String> = command.iter().map(fill).collect();
        let program = command.first()?.clone();
        let ran = run(&command, HEALTH_ACTIVE_CHECK_MAX).await;
        if !checker.is_named && ran.end == CheckEnd::Exited(NOT_CHECKED) {
            let evidence = format!("not checked actively: {}", ran.evidence(&program));
            return Some(CheckResult {
                outcome: (true, evidence),
                low: None,
            });
        }
        let mut figures = figures(&ran);
        if let Some(direct) = figures.get(PEERS_DIRECT) {
            let all = i64::try_from(peers.len()).unwrap_or(i64::MAX);
            figures.insert(PEERS_INDIRECT.to_owned(), (all - direct).max(0));
        }
        let wrong = figures.get(MISCOMPARES).copied().unwrap_or_default();
        if wrong > 0 {
            self.report(MISCOMPARE, MISCOMPARES, gpu.uuid, wrong).await;
        }
        let by_rule = by_rule(&figures);
        let samples: Vec<Sample> = by_rule
            .iter()
            .map(|(rule, metrics)| Sample::new(rule, Component::Gpu(gpu.uuid), metrics))
            .collect();
        if !samples.is_empty() {
            // Closed: the agent is ending, and the next one checks again.
            drop(self.0.seen.send(Observation::Samples(samples)).await);
        }
        let rules = self.0.gpus.known_faults.rules();
        let low = rules.and_then(|rules| too_low(&rules, &gpu.model, &by_rule));
        let outcome = (ran.succeeded() && wrong == 0, ran.evidence(&program));
        Some(CheckResult { outcome, low })
    }
}

/// The metrics used by rules, by rule.
fn by_rule(figures: &BTreeMap<String, i64>) -> BTreeMap<&'static str, Vec<(&'static str, i64)>> {
    let mut by_rule: BTreeMap<&str, Vec<(&str, i64)>> = BTreeMap::new();
    for (figure, rule) in FIGURES
        .into_iter()
        .chain([(PEERS_INDIRECT, PEER_BANDWIDTH)])
    {
        if let Some(value) = figures.get(figure) {
            by_rule.entry(rule).or_default().push((figure, *value));
        }
    }
    by_rule
}

/// The metric that is too low by a rule in force, the worst one first.
fn too_low(
    rules: &RuleSet,
    model: &str,
    by_rule: &BTreeMap<&'static str, Vec<(&'static str, i64)>>,
) -> Option<LowMetric> {
    let mut all = Vec::new();
    for (id, metrics) in by_rule {
        let Some(rule) = rules.rule(id).filter(|rule| rule.mode == Mode::Enforce) else {
            continue;
        };
        for (metric, value) in metrics {
            let is_met = |condition: &&Condition| {
                let is_its = condition.metric == *metric && condition.is_about(model);
                is_its && condition.operator.holds(*value, condition.value)
            };
            for (side, is_fatal) in [(&rule.fatal, true), (&rule.degraded, false)] {
                let met = side.when.iter().filter(is_met);
                all.extend(met.map(|condition| LowMetric {
                    figure: (*metric).to_owned(),
                    value: *value,
                    rule: (*id).to_owned(),
                    condition: condition.to_string(),
                    is_fatal,
                    times: match condition.hold {
                        Hold::InARow(times) => times,
                        _ => 1,
                    },
                }));
            }
        }
    }
    all.into_iter().max_by_key(|low| low.is_fatal)
}

/// The metrics that the site's check prints, without fractions and units; repeated ones are summed.
/// Negative values are ignored; values out of range are saturated.
pub(super) fn figures(ran: &ProgramResult) -> BTreeMap<String, i64> {
    let read = |line| checks::read(Dialect::Nagios, ran.end, line).figures;
    let mut figures = BTreeMap::new();
    for (name, value) in ran.output.lines().flat_map(read) {
        let end = value.find(|letter: char| !letter.is_ascii_digit());
        let digits = &value[..end.unwrap_or(value.len())];
        if !digits.is_empty() {
            // Only digits, so the value can only be too large.
            let value = digits.parse().unwrap_or(i64::MAX);
            let sum: &mut i64 = figures.entry(name).or_default();
            *sum = sum.saturating_add(value);
        }
    }
    figures
}
