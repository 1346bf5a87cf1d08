//! `muster simulate`: plays a trace, or the future of a running cluster, through the real planner in virtual
//! time.

mod what_if;

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use muster_model::quota::{QueueTree, validate};
use muster_model::topology::Topology;
use muster_simulate::report::Report;
use muster_simulate::trace::{Cluster, Quota, read_jobs, read_outages, read_quotas};
use muster_simulate::{
    JobInformation, LOAD_MAX, LOAD_MIN, Outcome, Policy, Rules, Scenario, Settings, SimulateError,
    TimeLimits, UnknownPolicy, simulate,
};

use self::what_if::{Shared, WhatIf};
use crate::command::common::configuration::{ConfigFile, unusable};
use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::output::{Format, Screen, render_document, span};
use crate::parse;

/// Template of one policy's progress bar: ended jobs out of all.
const PROGRESS: &str = "{prefix:>10} {bar:32} {percent:>3}% {msg}";

/// `muster simulate`
#[derive(Debug, Args)]
#[command(after_help = "\
muster simulate --cluster 352x8:V100 --jobs philly_jobs.csv.gz --policy fifo,queues --report out
muster simulate --cluster cluster.csv --jobs jobs.csv --faults faults.csv.gz --load 1.5
muster simulate --from-cluster --submit job.yaml
muster simulate --from-cluster --drain node[01-04] --queues queues.yaml --horizon 2d")]
pub(crate) struct Simulate {
    /// The hosts: a file with the columns node_id, gpus, gpu_type, cpus, mem_mib, rack, pod, or HOSTSxGPUS[:MODEL]
    #[arg(
        long,
        value_name = "FILE|SHAPE",
        required_unless_present = "from_cluster"
    )]
    cluster: Option<String>,
    /// The jobs: a file with the columns job_id, submit_s, duration_s, num_tasks, gpus_per_task and others, sorted by
    /// submit_s
    #[arg(long, value_name = "FILE", required_unless_present = "from_cluster")]
    jobs: Option<PathBuf>,
    /// Quotas for the policies that use them: a file with the columns vc, from_date, gpus. Or a complete
    /// queue tree as `muster queue apply` reads it (.yaml, .yml, .json), for the policy `tree` and with
    /// --from-cluster
    #[arg(long, value_name = "FILE")]
    queues: Option<PathBuf>,
    /// Outages of hosts and GPUs: a file with the columns node, start_s, end_s, gpu
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    /// Policies, one run each: fifo, priority, backfill, queues, fair, capacity, cells, tree (the last three
    /// need --queues)
    #[arg(long, default_value = "queues", value_name = "NAMES", value_delimiter = ',', value_parser = policy)]
    policy: Vec<Policy>,
    /// Only the jobs of these virtual clusters
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    vcs: Vec<String>,
    /// Virtual clusters with a quota do not borrow idle resources of others
    #[arg(long)]
    no_borrow: bool,
    /// No job may overtake a job of the same queue that waits for resources
    #[arg(long)]
    strict: bool,
    /// Running work may be moved to other hosts, so that a job at the head of the queue finds contiguous
    /// resources
    #[arg(long)]
    defragment: bool,
    /// Time limits that users give their jobs: none, exact, or the time needed rounded up: rounded-up:1h
    #[arg(long, default_value = "none", value_name = "LIMITS", value_parser = limits)]
    limits: TimeLimits,
    /// Learn how long jobs of one virtual cluster, user and number of GPUs usually run
    #[arg(long)]
    learn: bool,
    /// Jobs do not commit their checkpoints: the scheduler assumes that all work since a start is lost
    #[arg(long)]
    untold_checkpoints: bool,
    /// Jobs at the start of the file to leave out
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    skip: usize,
    /// Maximum number of jobs to read
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    jobs_max: Option<u64>,
    /// Factor of the arrival rate compared to the file
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", value_parser = load)]
    load: f64,
    /// Running time between two checkpoints (`none`: a stopped job restarts from the beginning)
    #[arg(
        long,
        visible_alias = "checkpoint-every",
        default_value = "1h",
        value_name = "DURATION",
        value_parser = checkpoint_interval
    )]
    checkpoint_interval: CheckpointInterval,
    /// All jobs arrive at once and never end: how many can be placed?
    #[arg(long)]
    packing: bool,
    /// Check all invariants of the state after every instant, or after every N instants
    #[arg(
        long,
        value_name = "INSTANTS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    audit: Option<u64>,
    /// Folder for report.html, the figures as JSON and the CSV files; created if missing
    #[arg(long, value_name = "FOLDER")]
    report: Option<PathBuf>,
    #[command(flatten)]
    what_if: WhatIf,
}

/// Time between checkpoints, if there are any.
#[derive(Clone, Copy, Debug)]
struct CheckpointInterval(Option<Duration>);

impl Simulate {
    /// Runs the command.
    pub(crate) fn run(self, options: &Options) -> Result<Exit, Failure> {
        let screen = options.screen();
        if self.what_if.is_requested() {
            let shared = Shared {
                queues: self.queues.as_deref(),
                audit_every: self.audit,
                report: self.report.as_deref(),
            };
            return self.what_if.run(options, shared);
        }
        self.what_if.refuse_without_cluster()?;
        let scenario = self.scenario()?;
        let outcomes = self
            .policy
            .iter()
            .map(|policy| play(&scenario, *policy, &screen))
            .collect::<Result<Vec<_>, _>>()?;
        let report = Report::new(&scenario, &outcomes);
        if let Some(folder) = &self.report {
            let paths = report
                .write(folder)
                .map_err(|error| Failure::new(chain(&error)))?;
            for path in paths {
                screen.progress(&format!("wrote {}", path.display()));
            }
        }
        let text = match screen.format {
            Format::Table | Format::Wide | Format::Name => report.to_string(),
            format => render_document(format, &report)?,
        };
        screen.data(&text)?;
        Ok(Exit::Ok)
    }

    fn scenario(&self) -> Result<Scenario, Failure> {
        let unusable = |error: &dyn std::error::Error| Failure::usage(chain(error));
        let missing = |option| Failure::usage(format!("{option} is missing"));
        let cluster = cluster(
            self.cluster
                .as_deref()
                .ok_or_else(|| missing("--cluster"))?,
        )?;
        let path = self.jobs.as_deref().ok_or_else(|| missing("--jobs"))?;
        let count = self.jobs_max.map_or(usize::MAX, |count| {
            usize::try_from(count).unwrap_or(usize::MAX)
        });
        let jobs = read_jobs(path, self.skip, count).map_err(|error| unusable(&error))?;
        if jobs.is_empty() {
            let file = path.display();
            return Err(Failure::usage(match self.skip {
                0 => format!("{file} has no job"),
                skip => format!("{file} has no job after the first {skip} (--skip)"),
            }));
        }
        let outages = match &self.faults {
            Some(path) => read_outages(path).map_err(|error| unusable(&error))?,
            None => Vec::new(),
        };
        let interval_ms =
            |interval: Duration| u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        let settings = Settings {
            load: self.load,
            checkpoint_interval_ms: self.checkpoint_interval.0.map(interval_ms),
            audit_every: self.audit,
            packing: self.packing,
            rules: Rules {
                borrow: !self.no_borrow,
                strict: self.strict,
                defragment: self.defragment,
            },
            job_information: JobInformation {
                limits: self.limits,
                alike: self.learn,
                checkpoints: !self.untold_checkpoints,
            },
        };
        let scenario = Scenario::new(cluster, jobs, &outages, settings);
        let scenario = scenario.with_quotas(self.quotas()?).with_tree(self.tree()?);
        if self.vcs.is_empty() {
            return Ok(scenario);
        }
        let names: Vec<&str> = self.vcs.iter().map(String::as_str).collect();
        let scenario = scenario.of_queues(&names);
        match scenario.jobs() {
            0 => Err(Failure::usage("no jobs of these virtual clusters").about("--vcs")),
            _ => Ok(scenario),
        }
    }

    /// The queue file if it contains a tree.
    fn tree_file(&self) -> Option<&Path> {
        let path = self.queues.as_deref()?;
        let extension = path.extension()?.to_str()?;
        ["yaml", "yml", "json"].contains(&extension).then_some(path)
    }

    fn quotas(&self) -> Result<Vec<Quota>, Failure> {
        let needing = self.policy.iter().find(|policy| policy.needs_quotas());
        let file = self
            .queues
            .as_deref()
            .filter(|_| self.tree_file().is_none());
        match (file, needing) {
            (Some(path), _) => read_quotas(path).map_err(|error| Failure::usage(chain(&error))),
            (None, Some(policy)) => Err(Failure::usage(format!(
                "policy {policy} uses quotas: give their file (vc, gpus) with --queues"
            ))),
            (None, None) => Ok(Vec::new()),
        }
    }

    fn tree(&self) -> Result<QueueTree, Failure> {
        let Some(path) = self.tree_file() else {
            return match self.policy.contains(&Policy::Tree) {
                true => Err(Failure::usage(
                    "policy tree uses a queue tree: give its file (.yaml, .json) with --queues",
                )),
                false => Ok(QueueTree::default()),
            };
        };
        let file: ConfigFile<QueueTree> = ConfigFile::read(&path.to_string_lossy())?;
        let broken = validate(&file.value, &Topology::default());
        let errors = file.locate(
            broken
                .iter()
                .map(|it| (it.field.as_str(), it.rule.as_str())),
        );
        match errors.is_empty() {
            true => Ok(file.value),
            false => Err(unusable(errors)),
        }
    }
}

/// Parses a cluster's short form, or else reads its file.
fn cluster(text: &str) -> Result<Cluster, Failure> {
    let path = Path::new(text);
    match text.parse() {
        Ok(cluster) => Ok(cluster),
        Err(shape) if !path.exists() => {
            let message = format!("file `{text}` does not exist, and as a short form {shape}");
            Err(Failure::usage(message).about("--cluster"))
        }
        Err(_) => Cluster::read(path).map_err(|error| Failure::usage(chain(&error))),
    }
}

fn play(scenario: &Scenario, policy: Policy, screen: &Screen) -> Result<Outcome, Failure> {
    // The bar hides itself if stderr is not a terminal.
    let bar = if screen.quiet {
        ProgressBar::hidden()
    } else {
        ProgressBar::new(scenario.jobs() as u64)
    };
    let style =
        ProgressStyle::with_template(PROGRESS).map_err(|error| Failure::internal(&error))?;
    bar.set_style(style);
    bar.set_prefix(policy.name());
    let outcome = simulate(scenario, policy, &mut |progress| {
        bar.set_position(progress.jobs_ended);
        bar.set_message(span(progress.virtual_ms));
    });
    bar.finish_and_clear();
    outcome.map_err(|error| {
        let about = format!("policy {policy}");
        match error {
            SimulateError::Setup { .. } => Failure::usage(chain(&error)).about(&about),
            _ => Failure::new(chain(&error))
                .about(&about)
                .help("inconsistent engine state; please report this as a bug"),
        }
    })
}

fn policy(text: &str) -> Result<Policy, UnknownPolicy> {
    text.parse()
}

fn load(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(factor) if (LOAD_MIN..=LOAD_MAX).contains(&factor) => Ok(factor),
        _ => Err(format!(
            "must be a number from {LOAD_MIN} (LOAD_MIN) to {LOAD_MAX} (LOAD_MAX): 2 doubles the arrival rate"
        )),
    }
}

fn limits(text: &str) -> Result<TimeLimits, String> {
    if let Some(step) = text.strip_prefix("rounded-up:") {
        let step_ms = u64::try_from(parse::duration(step)?.as_millis()).unwrap_or(u64::MAX);
        let step_ms = NonZeroU64::new(step_ms).ok_or("the step must be at least 1ms")?;
        return Ok(TimeLimits::RoundedUp { step_ms });
    }
    match text {
        "none" => Ok(TimeLimits::None),
        "exact" => Ok(TimeLimits::Exact),
        _ => Err("must be none, exact or rounded-up:DURATION".to_owned()),
    }
}

fn checkpoint_interval(text: &str) -> Result<CheckpointInterval, String> {
    if text == "none" {
        return Ok(CheckpointInterval(None));
    }
    let interval = parse::duration(text)?;
    if interval < Duration::from_millis(1) {
        return Err("at least 1ms, or `none`".to_owned());
    }
    Ok(CheckpointInterval(Some(interval)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_and_intervals_are_checked() {
        assert_eq!(load("1.5"), Ok(1.5));
        assert!(
            ["0", "-1", "NaN", "inf", "x", "1e-300", "1e7"]
                .iter()
                .all(|text| load(text).is_err())
        );
        assert!(checkpoint_interval("none").is_ok_and(|interval| interval.0.is_none()));
        assert!(checkpoint_interval("soon").is_err() && checkpoint_interval("0s").is_err());
        assert_eq!(limits("exact"), Ok(TimeLimits::Exact));
        let hours = NonZeroU64::new(7_200_000).map(|step_ms| TimeLimits::RoundedUp { step_ms });
        assert_eq!(limits("rounded-up:2h").ok(), hours);
        assert!(limits("rounded-up:0s").is_err() && limits("some").is_err());
    }
}
