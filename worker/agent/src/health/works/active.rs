//! The active check of a GPU: the program that measures it, and what its figures mean by the rules.
//!
//! A figure counts against a GPU only if it is too low several times in a row, and an ordered check is one run: so the check is run
//! again as long as that is open. What is too low often enough fails it, whatever the program ends with.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use muster_health::checks::{self, CheckEnd, Dialect};
use muster_health::rules::{Condition, Hold, Mode, RuleSet};
use muster_model::command::GpuDescription;
use muster_model::health::Component;

use crate::health::program::{Ran, run};
use crate::health::works::{ACTIVE_CHECK, Course, Outcome, Works};
use crate::health::{HealthConfig, Sample, Seen};
use crate::limits::{HEALTH_ACTIVE_CHECK_MAX, HEALTH_ACTIVE_CHECK_RUNS_MAX};

/// The rule about results that differ from what they must be.
pub(super) const MISCOMPARE: &str = "miscompare";
/// Its figure, which the check prints behind `|`, as Nagios plugins do.
pub(super) const MISCOMPARES: &str = "miscompares";
/// Further figures that the check may print, and the rules that go by them.
const FIGURES: [(&str, &str); 4] = [
    ("baseline_permille", ACTIVE_CHECK),
    ("gb_per_s", BANDWIDTH),
    ("from_gb_per_s", BANDWIDTH),
    ("peer_gb_per_s", PEER_BANDWIDTH),
];
/// The rule about the ways between GPUs and their host.
const BANDWIDTH: &str = "h2d_bw";
/// The rule about the ways between GPUs.
const PEER_BANDWIDTH: &str = "peer_bw";
/// How many of its peers a GPU reaches without the host.
const PEERS_DIRECT: &str = "peers_direct";
/// How many it does not: what its rule goes by.
const PEERS_INDIRECT: &str = "peers_indirect";
/// What stands in the command for the other GPUs that are checked together with one.
const PEERS: &str = "{peers}";
/// What stands in it for how many seconds it may measure.
const SECONDS: &str = "{seconds}";
/// So many as a rule, and of what fails again and again.
const SECONDS_QUICK: &str = "10";
const SECONDS_THOROUGH: &str = "60";
/// The program that ships.
const SHIPPED: &str = "muster-gpu-check";
/// How it says that it could not check at all: no library for products, say.
const NOT_CHECKED: i32 = 3;
/// The word for no active check.
const OFF: &str = "off";

/// The program that checks GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Checker {
    /// Empty for none.
    command: Vec<String>,
    /// Whether the site names it. One that it does not name has to prove nothing: what it cannot check, it does not fail.
    is_named: bool,
}

impl Checker {
    /// The program that the site names; else the one that ships, if it is installed and the GPUs are real.
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
        let words = [&program, "{uuid}", "--peers", PEERS, "--seconds", SECONDS];
        Self {
            command: words.map(str::to_owned).to_vec(),
            is_named: false,
        }
    }
}

/// Where the program that ships is installed: beside this one.
pub(super) fn shipped_beside_this() -> PathBuf {
    let this = std::env::current_exe().unwrap_or_default();
    this.with_file_name(SHIPPED)
}

/// One run of the check.
struct Measured {
    outcome: Outcome,
    low: Option<Low>,
}

/// A figure that a rule calls too low.
#[derive(Debug, PartialEq, Eq)]
struct Low {
    figure: String,
    value: i64,
    rule: String,
    condition: String,
    is_fatal: bool,
    /// How often in a row it must be too low before that counts.
    times: u32,
}

impl Works {
    /// The active check, if there is one, of one of the GPUs that are checked together: nothing runs on any of them.
    pub(super) async fn active_check(
        &self,
        gpu: &GpuDescription,
        together: &[&GpuDescription],
        course: Course,
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
                let Low {
                    figure,
                    value,
                    rule,
                    condition,
                    ..
                } = low;
                let told = format!("{figure} is {value} (rule {rule}: {condition}); {evidence}");
                (false, told)
            }
            _ => (passed, evidence),
        })
    }

    /// Runs the check once, and tells what it measured.
    async fn measure(
        &self,
        gpu: &GpuDescription,
        together: &[&GpuDescription],
        course: Course,
    ) -> Option<Measured> {
        let checker = &self.0.checker;
        let command = self.of_gpu(&checker.command, gpu);
        let peers = { together.iter() }.filter(|peer| peer.uuid != gpu.uuid);
        let peers: Vec<String> = peers.map(|peer| peer.uuid.to_string()).collect();
        let seconds = if course.is_thorough {
            SECONDS_THOROUGH
        } else {
            SECONDS_QUICK
        };
        let fill = |word: &String| {
            let word = word.replace(PEERS, &peers.join(","));
            word.replace(SECONDS, seconds)
        };
        let command: Vec<String> = command.iter().map(fill).collect();
        let program = command.first()?.clone();
        let ran = run(&command, HEALTH_ACTIVE_CHECK_MAX).await;
        if !checker.is_named && ran.end == CheckEnd::Exited(NOT_CHECKED) {
            let evidence = format!("not checked actively: {}", ran.evidence(&program));
            return Some(Measured {
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
            self.tell((MISCOMPARE, MISCOMPARES), gpu.uuid, wrong).await;
        }
        let by_rule = by_rule(&figures);
        let samples: Vec<Sample> = { by_rule.iter() }
            .map(|(rule, metrics)| Sample::new(rule, Component::Gpu(gpu.uuid), metrics))
            .collect();
        if !samples.is_empty() {
            // Closed: the agent ends, and the next one checks again.
            drop(self.0.seen.send(Seen::Samples(samples)).await);
        }
        let rules = self.0.gpus.against.rules();
        let low = rules.and_then(|rules| too_low(&rules, &gpu.model, &by_rule));
        let outcome = (ran.is_well() && wrong == 0, ran.evidence(&program));
        Some(Measured { outcome, low })
    }
}

/// The figures that rules go by, by their rules.
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

/// The figure that a rule in force calls too low, the worst first.
fn too_low(
    rules: &RuleSet,
    model: &str,
    by_rule: &BTreeMap<&'static str, Vec<(&'static str, i64)>>,
) -> Option<Low> {
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
                all.extend(met.map(|condition| Low {
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

/// The figures that the site's check prints, without fractions and units; of those that it prints often, the sum. One that is
/// negative says nothing; what is beyond counting is as much as can be counted.
pub(super) fn figures(ran: &Ran) -> BTreeMap<String, i64> {
    let read = |line| checks::read(Dialect::Nagios, ran.end, line).figures;
    let mut figures = BTreeMap::new();
    for (name, value) in ran.output.lines().flat_map(read) {
        let end = value.find(|letter: char| !letter.is_ascii_digit());
        let digits = &value[..end.unwrap_or(value.len())];
        if !digits.is_empty() {
            // Digits alone, so it can only be too large.
            let value = digits.parse().unwrap_or(i64::MAX);
            let sum: &mut i64 = figures.entry(name).or_default();
            *sum = sum.saturating_add(value);
        }
    }
    figures
}
