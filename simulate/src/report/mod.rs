//! Output of the simulator: figures, tables, files and pictures of one or several runs of a scenario.

mod bounds;
mod charts;
mod figures;
mod files;
mod html;
mod numbers;
mod text;

use serde::Serialize;

pub use bounds::Bounds;
pub use figures::{ClusterFigures, Effort, Group, HealthFigures, JobFigures, Spread};
pub use files::ReportError;
pub(crate) use files::table;
pub(crate) use numbers::{seconds, span};

use figures::{cluster_figures, job_figures};

use crate::measure::{Series, SizeBucket};
use crate::rules::{JobInformation, Rules};
use crate::workload::{LeftOut, Scenario};
use crate::world::Outcome;

/// Simulated input.
#[derive(Clone, Debug, Serialize)]
pub struct Inputs {
    /// Hosts of the cluster.
    pub hosts: usize,
    /// Total GPUs.
    pub gpus: u64,
    /// Number of simulated jobs.
    pub jobs: usize,
    /// Factor by which jobs arrive faster than in the trace.
    pub load: f64,
    /// True if all jobs arrived at once and none ended.
    pub packing: bool,
    /// Run time between two checkpoints, in seconds; `None` if stopped attempts lose everything.
    pub checkpoint_interval_s: Option<f64>,
    /// Changes to the policies' rules.
    pub rules: Rules,
    /// Information about the jobs that the scheduler was given.
    pub job_information: JobInformation,
    /// Outages of hosts.
    pub outages: usize,
    /// Outages of nodes that no host represents.
    pub outages_elsewhere: u64,
    /// Jobs left out because their duration is unknown.
    pub without_duration: LeftOut,
    /// Jobs that requested a fraction of a GPU and got a whole one.
    pub shares_rounded_up: u64,
    /// Quotas of virtual clusters that have another one of an earlier date, which is used for the whole time.
    pub quotas_not_applied: u64,
}

/// A run of the scenario under one policy.
#[derive(Clone, Debug, Serialize)]
pub struct RunReport {
    /// The policy.
    pub policy: &'static str,
    /// Figures of the cluster as a whole.
    pub cluster: ClusterFigures,
    /// Bounds for any policy.
    pub bounds: Bounds,
    /// Figures of all jobs.
    pub all: JobFigures,
    /// Figures by queue (virtual cluster), by name.
    pub by_queue: Vec<Group>,
    /// Figures by the GPUs that a job asks for.
    pub by_size: Vec<Group>,
    /// Jobs that no host, or not even the whole cluster, could hold.
    pub fits_nowhere: LeftOut,
    /// Jobs whose submission was refused.
    pub refused: LeftOut,
    /// Health figures, if the engine manages health.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthFigures>,
    /// Work done by the engine.
    pub effort: Effort,
}

/// A scenario and its runs under all policies.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    /// Simulated input.
    pub inputs: Inputs,
    /// One entry per policy.
    pub runs: Vec<RunReport>,
    #[serde(skip)]
    scenario: &'a Scenario,
    #[serde(skip)]
    outcomes: &'a [Outcome],
}

impl<'a> Report<'a> {
    /// Creates the report on a scenario's runs.
    #[must_use]
    pub fn new(scenario: &'a Scenario, outcomes: &'a [Outcome]) -> Self {
        let settings = &scenario.settings;
        Self {
            inputs: Inputs {
                hosts: scenario.cluster.hosts.len(),
                gpus: scenario.cluster.gpus(),
                jobs: scenario.jobs.len(),
                load: settings.load,
                packing: settings.packing,
                checkpoint_interval_s: settings.checkpoint_interval_ms.map(seconds),
                rules: settings.rules,
                job_information: settings.job_information,
                outages: scenario.outages.len(),
                outages_elsewhere: scenario.outages_elsewhere,
                without_duration: scenario.without_duration.clone(),
                shares_rounded_up: scenario.shares_rounded_up,
                quotas_not_applied: scenario.quotas_not_applied,
            },
            runs: outcomes
                .iter()
                .map(|outcome| run_report(scenario, outcome))
                .collect(),
            scenario,
            outcomes,
        }
    }
}

impl Report<'_> {
    /// The share of jobs by queueing delay, one line per run, as a standalone picture.
    #[must_use]
    pub fn delays_picture(&self) -> String {
        let legend = charts::policies(self.outcomes);
        charts::delays_of(self.outcomes).finish_as_file(&legend)
    }
}

fn run_report(scenario: &Scenario, outcome: &Outcome) -> RunReport {
    let records = &outcome.records;
    let by_queue: Vec<Group> = (0..)
        .zip(&outcome.queues)
        .map(|(position, name)| Group {
            name: name.clone(),
            jobs: job_figures(records.iter().filter(|record| record.queue == position)),
        })
        .collect();
    let in_bucket = |bucket: SizeBucket| {
        let records = records.iter();
        records.filter(move |record| SizeBucket::of(record.gpus) == bucket)
    };
    let by_size = SizeBucket::ALL
        .into_iter()
        .map(|bucket| Group {
            name: bucket.name().to_owned(),
            jobs: job_figures(in_bucket(bucket)),
        })
        .filter(|group| group.jobs.jobs > 0)
        .collect();
    RunReport {
        policy: outcome.policy.name(),
        cluster: cluster_figures(scenario, outcome, &by_queue),
        bounds: Bounds::of(scenario, outcome),
        all: job_figures(records.iter()),
        by_queue,
        by_size,
        fits_nowhere: outcome.fits_nowhere.clone(),
        refused: outcome.refused.clone(),
        health: HealthFigures::of(scenario, outcome),
        effort: Effort {
            commands: outcome.commands,
            rounds: outcome.rounds,
            placements: outcome.placements,
            audits: outcome.audits,
        },
    }
}
