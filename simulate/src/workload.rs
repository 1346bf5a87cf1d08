//! Simulated workload: a cluster, the arriving jobs, the failing hosts.

use std::collections::BTreeSet;
use std::ops::Range;

use muster_model::quota::QueueTree;
use serde::Serialize;

use crate::fault::{HardwareFault, HealthFeatures};
use crate::policy::{host_kind, queue_named};
use crate::rules::{JobInformation, Rules};
use crate::trace::{Cluster, Outage, Quota, TraceJob, hosts_of_nodes};

/// Names kept of counted objects.
const NAMES_KEPT_MAX: usize = 10;
/// Default time between two checkpoints: one hour.
const CHECKPOINT_INTERVAL_MS: u64 = 3_600_000;

/// Smallest load: a trace's longest clock (`SECONDS_MAX`), stretched by it, is still exact in milliseconds.
pub const LOAD_MIN: f64 = 0.1;
/// Largest load: all jobs of a year arrive within half a minute.
pub const LOAD_MAX: f64 = 1_000_000.0;

/// Settings of a simulation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Factor by which jobs arrive faster than in the trace: [`LOAD_MIN`] to [`LOAD_MAX`].
    pub load: f64,
    /// Run time between two checkpoints: a stopped attempt loses its work since the last one, or all of it
    /// without checkpoints.
    pub checkpoint_interval_ms: Option<u64>,
    /// Number of instants between two audits of the state; `None` for no audits.
    pub audit_every: Option<u64>,
    /// All jobs arrive at once and never end: tests how many can be placed.
    pub packing: bool,
    /// Changes to a policy's rules.
    pub rules: Rules,
    /// Information about the jobs that the scheduler is given.
    pub job_information: JobInformation,
}

impl Default for Settings {
    /// The trace's own pace, a checkpoint every hour, no audits, unmodified policies.
    fn default() -> Self {
        Self {
            load: 1.0,
            checkpoint_interval_ms: Some(CHECKPOINT_INTERVAL_MS),
            audit_every: None,
            packing: false,
            rules: Rules::default(),
            job_information: JobInformation::default(),
        }
    }
}

/// A number of objects, and the names of the first ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Number of objects.
    pub count: u64,
    /// The names of the first ones, with the reason if it is not the same for all.
    pub first: Vec<String>,
}

impl LeftOut {
    pub(crate) fn add(&mut self, name: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < NAMES_KEPT_MAX {
            self.first.push(name());
        }
    }
}

/// Object of an outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OutageTarget {
    /// The host at a position of the cluster, with all its tasks.
    Host(usize),
    /// The GPU with the given index on that host.
    Gpu(usize, u32),
}

/// A span during which a host of the cluster, or a GPU, is unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaceOutage {
    pub(crate) place: OutageTarget,
    pub(crate) start_ms: u64,
    pub(crate) end_ms: u64,
}

/// A cluster, the arriving jobs, and the failing hosts, on one clock: 0 is the first submission.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(crate) cluster: Cluster,
    pub(crate) jobs: Vec<TraceJob>,
    pub(crate) outages: Vec<PlaceOutage>,
    pub(crate) quotas: Vec<Quota>,
    pub(crate) tree: QueueTree,
    pub(crate) settings: Settings,
    /// Faulty parts, detected or not.
    pub(crate) faults: Vec<HardwareFault>,
    /// Health features that the engine uses; `None` for no health management.
    pub(crate) health_features: Option<HealthFeatures>,
    /// Random seed of the simulated faults.
    pub(crate) fault_seed: u64,
    /// Jobs whose duration the trace does not say; they are not simulated, unless no job ends anyway.
    pub without_duration: LeftOut,
    /// Jobs that requested a fraction of a GPU and get a whole one.
    pub shares_rounded_up: u64,
    /// Quotas of virtual clusters that have another one of an earlier date.
    pub quotas_not_applied: u64,
    /// Outages of nodes that no host of the cluster represents, or of GPUs that their host does not have.
    pub outages_elsewhere: u64,
}

impl Scenario {
    /// Puts everything on one clock. Jobs are in order of submission; the clock of the outages starts with
    /// the first submission.
    ///
    /// # Panics
    /// If the load is out of bounds.
    #[must_use]
    pub fn new(
        cluster: Cluster,
        mut jobs: Vec<TraceJob>,
        outages: &[Outage],
        settings: Settings,
    ) -> Self {
        assert!(
            (LOAD_MIN..=LOAD_MAX).contains(&settings.load),
            "the caller checks that the load is within its bounds"
        );
        let mut without_duration = LeftOut::default();
        if settings.packing {
            for job in &mut jobs {
                (job.submit_ms, job.duration_ms) = (0, None);
            }
        } else {
            jobs.retain(|job| {
                if job.duration_ms.is_none() {
                    without_duration.add(|| job.name.clone());
                }
                job.duration_ms.is_some()
            });
            compress(&mut jobs, settings.load);
        }
        let shares = jobs.iter().filter_map(|job| job.gpu_milli);
        let shares_rounded_up = shares.filter(|milli| (1..1_000).contains(milli)).count();
        let known = place_outages(&cluster, outages);
        Self {
            outages_elsewhere: (outages.len() - known.len()) as u64,
            outages: known,
            quotas: Vec::new(),
            quotas_not_applied: 0,
            tree: QueueTree::default(),
            cluster,
            jobs,
            settings,
            faults: Vec::new(),
            health_features: None,
            fault_seed: 0,
            without_duration,
            shares_rounded_up: shares_rounded_up as u64,
        }
    }

    /// Adds quotas for virtual clusters; of several for one cluster the first counts.
    #[must_use]
    pub fn with_quotas(mut self, quotas: Vec<Quota>) -> Self {
        let mut known = BTreeSet::new();
        let count = quotas.len();
        self.quotas = quotas
            .into_iter()
            .filter(|quota| known.insert(quota.queue.clone()))
            .collect();
        self.quotas_not_applied = (count - self.quotas.len()) as u64;
        self
    }

    /// Adds a queue tree for the policy that uses it.
    #[must_use]
    pub fn with_tree(mut self, tree: QueueTree) -> Self {
        self.tree = tree;
        self
    }

    /// Makes the cluster's parts faulty for the duration of these outages, and enables the health features
    /// up to `features`. Jobs then have three retries, and users of their own if the trace names none.
    #[must_use]
    pub fn with_health_features(mut self, outages: &[Outage], features: HealthFeatures) -> Self {
        self.faults = HardwareFault::of(outages, &self.cluster);
        self.health_features = Some(features);
        self
    }

    /// Sets another random seed for the same faults: it decides when a task dies from an intermittent fault,
    /// and whether a check finds a fault without a sign.
    #[must_use]
    pub const fn with_fault_seed(mut self, seed: u64) -> Self {
        self.fault_seed = seed;
        self
    }

    /// Adds a wrong rule: it finds all GPUs of the given percentage of hosts faulty during the given span.
    #[must_use]
    pub fn with_false_alarm(mut self, percent: u64, span_ms: Range<u64>) -> Self {
        let alarm = HardwareFault::false_alarm(&self.cluster, percent, span_ms);
        self.faults.extend(alarm);
        self
    }

    /// Sets other information about the jobs for the scheduler.
    #[must_use]
    pub const fn with_known(mut self, information: JobInformation) -> Self {
        self.settings.job_information = information;
        self
    }

    /// Keeps only the jobs and quotas of these virtual clusters; the clock stays.
    #[must_use]
    pub fn of_queues(mut self, names: &[&str]) -> Self {
        self.jobs.retain(|job| names.contains(&queue_named(job)));
        self.quotas
            .retain(|quota| names.contains(&quota.queue.as_str()));
        self
    }

    /// A virtual cluster with a cluster of its own: its jobs on as many hosts as its quota has GPUs, equal
    /// to those that the quota stands for, without outages. `None` if it has no quota or the cluster no
    /// GPUs.
    #[must_use]
    pub fn alone(&self, queue: &str) -> Option<Self> {
        let quota = self.quotas.iter().find(|quota| quota.queue == queue)?;
        let kind = host_kind(&self.cluster)?;
        let count = usize::try_from(quota.gpus / u64::from(kind.gpus)).ok()?;
        let hosts = self.cluster.hosts.iter();
        let alike =
            hosts.filter(|host| (host.gpus, &host.gpu_model) == (kind.gpus, &kind.gpu_model));
        let cluster = Cluster {
            hosts: alike.take(count).cloned().collect(),
        };
        let mut alone = self.clone().of_queues(&[queue]);
        (alone.cluster, alone.outages) = (cluster, Vec::new());
        Some(alone)
    }

    /// Maximum number of jobs and GPUs placed at the same time: no more GPUs are held than exist or are
    /// requested; and with the smallest jobs first, no other choice places more jobs before the GPUs are
    /// used up.
    #[must_use]
    pub fn packing_bound(&self) -> (u64, u64) {
        let mut sizes: Vec<u64> = self.jobs.iter().map(|job| u64::from(job.gpus())).collect();
        let most = self.cluster.gpus().min(sizes.iter().sum());
        sizes.sort_unstable();
        let mut used = 0;
        let fitting = sizes.into_iter().take_while(|gpus| {
            used += gpus;
            used <= most
        });
        (fitting.count() as u64, most)
    }

    /// Number of simulated jobs.
    #[must_use]
    pub const fn jobs(&self) -> usize {
        self.jobs.len()
    }
}

/// Moves the first submission to 0 and divides the intervals by the load.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "milliseconds of a trace are at most 10^14, a tenth of 2^50, and the load is at least LOAD_MIN"
)]
fn compress(jobs: &mut [TraceJob], load: f64) {
    let origin_ms = jobs.first().map_or(0, |job| job.submit_ms);
    for job in jobs {
        let since_ms = job.submit_ms.saturating_sub(origin_ms) as f64;
        job.submit_ms = (since_ms / load).round() as u64;
    }
}

fn place_outages(cluster: &Cluster, outages: &[Outage]) -> Vec<PlaceOutage> {
    let names: Vec<&str> = cluster
        .hosts
        .iter()
        .map(|host| host.name.as_str())
        .collect();
    let hosts = hosts_of_nodes(outages, &names);
    let known = outages.iter().filter_map(|outage| {
        let host = *hosts.get(&outage.node)?;
        let place = match outage.gpu {
            None => OutageTarget::Host(host),
            Some(gpu) if gpu < cluster.hosts[host].gpus => OutageTarget::Gpu(host, gpu),
            Some(_) => return None,
        };
        Some(PlaceOutage {
            place,
            start_ms: outage.start_ms,
            end_ms: outage.end_ms,
        })
    });
    known.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(submit_ms: u64) -> TraceJob {
        TraceJob {
            name: submit_ms.to_string(),
            submit_ms,
            duration_ms: Some(1),
            tasks: 1,
            ..TraceJob::default()
        }
    }

    #[test]
    fn the_clock_begins_with_the_first_submission_and_load_compresses_it() {
        let settings = Settings {
            load: 2.0,
            ..Settings::default()
        };
        let jobs = vec![job(1_000), job(3_000), job(3_001)];
        let scenario = Scenario::new(Cluster::uniform(1, 8, "gpu"), jobs, &[], settings);
        let times: Vec<u64> = scenario.jobs.iter().map(|job| job.submit_ms).collect();
        assert_eq!(times, [0, 1_000, 1_001]);
    }

    #[test]
    fn quotas_of_later_dates_are_counted() {
        let quota = |queue: &str, from_date: Option<&str>, gpus| Quota {
            queue: queue.to_owned(),
            from_date: from_date.map(str::to_owned),
            gpus,
        };
        let quotas = vec![
            quota("a", None, 8),
            quota("a", Some("2020-09-01"), 16),
            quota("b", None, 4),
        ];
        let cluster = Cluster::uniform(1, 8, "gpu");
        let scenario = Scenario::new(cluster, vec![job(1)], &[], Settings::default());
        let scenario = scenario.with_quotas(quotas);
        let kept: Vec<u64> = scenario.quotas.iter().map(|quota| quota.gpus).collect();
        assert_eq!((kept, scenario.quotas_not_applied), (vec![8, 4], 1));
    }

    #[test]
    fn jobs_without_a_duration_are_counted_and_named() {
        let endless = TraceJob {
            duration_ms: None,
            ..job(5)
        };
        let jobs = vec![job(1), endless];
        let cluster = Cluster::uniform(1, 8, "gpu");
        let scenario = Scenario::new(cluster, jobs, &[], Settings::default());
        assert_eq!(scenario.jobs(), 1);
        assert_eq!(scenario.without_duration.first, ["5"]);
    }
}
