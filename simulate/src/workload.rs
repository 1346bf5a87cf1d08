//! What is simulated: a cluster, the jobs that come, the hosts that fail.

use muster_model::quota::QueueTree;
use serde::Serialize;

use crate::illness::{Care, Illness};
use crate::policy::{host_kind, queue_named};
use crate::rules::{Rules, Told};
use crate::trace::{Cluster, Outage, Quota, TraceJob, hosts_of_nodes};

/// Names kept of things that are counted.
const NAMES_KEPT_MAX: usize = 10;
/// Time between two checkpoints where nothing else is said: one hour.
const CHECKPOINT_INTERVAL_MS: u64 = 3_600_000;

/// Smallest load: a trace's longest clock (`SECONDS_MAX`), stretched by it, is still exact in milliseconds.
pub const LOAD_MIN: f64 = 0.1;
/// Largest load: everything of a year comes within half a minute.
pub const LOAD_MAX: f64 = 1_000_000.0;

/// How a simulation is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Jobs come this many times as fast as in the trace: [`LOAD_MIN`] to [`LOAD_MAX`].
    pub load: f64,
    /// Running time between two checkpoints: what a stopped attempt did since the last one is lost; all of it if
    /// there are none.
    pub checkpoint_interval_ms: Option<u64>,
    /// The state is audited after so many instants; never if none.
    pub audit_every: Option<u64>,
    /// All jobs come at once and never end: how many find a place?
    pub packing: bool,
    /// What of a policy's rules is varied.
    pub rules: Rules,
    /// What the scheduler is told about the jobs.
    pub told: Told,
}

impl Default for Settings {
    /// The trace's own pace, a checkpoint every hour, no audits, nothing varied.
    fn default() -> Self {
        Self {
            load: 1.0,
            checkpoint_interval_ms: Some(CHECKPOINT_INTERVAL_MS),
            audit_every: None,
            packing: false,
            rules: Rules::default(),
            told: Told::default(),
        }
    }
}

/// Things that are counted, and the first of them by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// How many.
    pub count: u64,
    /// The names of the first ones, with the reason where it is not the same for all.
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

/// What an outage takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// The host at a position of the cluster, with all that runs there.
    Host(usize),
    /// Of that host, the GPU of an index.
    Gpu(usize, u32),
}

/// A span during which a host of the cluster, or a GPU, is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaceOutage {
    pub(crate) place: Place,
    pub(crate) start_ms: u64,
    pub(crate) end_ms: u64,
}

/// A cluster, the jobs that come, and the hosts that fail, on one clock: 0 is the first submission.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub(crate) cluster: Cluster,
    pub(crate) jobs: Vec<TraceJob>,
    pub(crate) outages: Vec<PlaceOutage>,
    pub(crate) quotas: Vec<Quota>,
    pub(crate) tree: QueueTree,
    pub(crate) settings: Settings,
    /// Parts that are ill, whoever knows it.
    pub(crate) illnesses: Vec<Illness>,
    /// Whether and how the engine looks after its hosts.
    pub(crate) care: Option<Care>,
    /// Which of all possible courses illnesses take: the salt of everything that is left to luck.
    pub(crate) luck: u64,
    /// Jobs whose duration the trace does not say; they are not simulated, unless nothing ends anyway.
    pub without_duration: LeftOut,
    /// Jobs that asked for a share of a GPU and get a whole one.
    pub shares_rounded_up: u64,
    /// Outages of nodes that stand for no host of the cluster, or of GPUs that theirs does not have.
    pub outages_elsewhere: u64,
}

impl Scenario {
    /// Puts everything on one clock. Jobs are in order of submission; the first outage's clock begins with the
    /// first submission.
    ///
    /// # Panics
    /// If the load is not within its bounds.
    #[must_use]
    pub fn new(
        cluster: Cluster,
        mut jobs: Vec<TraceJob>,
        outages: &[Outage],
        settings: Settings,
    ) -> Self {
        assert!(
            (LOAD_MIN..=LOAD_MAX).contains(&settings.load),
            "the load lies within its bounds, which whoever reads it checks"
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
            tree: QueueTree::default(),
            cluster,
            jobs,
            settings,
            illnesses: Vec::new(),
            care: None,
            luck: 0,
            without_duration,
            shares_rounded_up: shares_rounded_up as u64,
        }
    }

    /// The same with quotas for virtual clusters; of several for one the first counts.
    #[must_use]
    pub fn with_quotas(mut self, quotas: Vec<Quota>) -> Self {
        self.quotas = quotas;
        self
    }

    /// The same with a tree of queues for the policy that goes by it.
    #[must_use]
    pub fn with_tree(mut self, tree: QueueTree) -> Self {
        self.tree = tree;
        self
    }

    /// The same in a cluster whose parts are ill as long as these outages last, and that looks after its hosts so far. Jobs then
    /// have three retries, and users of their own where the trace names none.
    #[must_use]
    pub fn in_care(mut self, outages: &[Outage], care: Care) -> Self {
        self.illnesses = Illness::of(outages, &self.cluster);
        self.care = Some(care);
        self
    }

    /// The same illnesses with other luck: when a task dies of what harms now and then, and whether a check finds what nothing
    /// tells of.
    #[must_use]
    pub const fn with_luck(mut self, luck: u64) -> Self {
        self.luck = luck;
        self
    }

    /// The same with a rule that is wrong: it finds all GPUs of so many of a hundred hosts ill, from a moment on and for as
    /// long as is given.
    #[must_use]
    pub fn with_false_alarm(mut self, percent: u64, (start_ms, end_ms): (u64, u64)) -> Self {
        let alarm = Illness::false_alarm(&self.cluster, percent, (start_ms, end_ms));
        self.illnesses.extend(alarm);
        self
    }

    /// The same with something else told to the scheduler.
    #[must_use]
    pub const fn telling(mut self, told: Told) -> Self {
        self.settings.told = told;
        self
    }

    /// The same with no jobs, and no quotas, but those of these virtual clusters; the clock stays.
    #[must_use]
    pub fn of_queues(mut self, names: &[&str]) -> Self {
        self.jobs.retain(|job| names.contains(&queue_named(job)));
        self.quotas
            .retain(|quota| names.contains(&quota.queue.as_str()));
        self
    }

    /// A virtual cluster with a cluster of its own: its jobs on as many hosts as its quota has GPUs, alike to those that
    /// the quota stands for, without outages. None if it has no quota or the cluster no GPUs.
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

    /// Jobs and GPUs that find a place at the same time at most: no more GPUs are held than there are, nor than are asked
    /// for; and if the smallest jobs come first, no other choice has more of them before the GPUs are used up.
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

    /// Jobs that are simulated.
    #[must_use]
    pub const fn jobs(&self) -> usize {
        self.jobs.len()
    }
}

/// Moves the first submission to 0 and divides the time between two by the load.
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
            None => Place::Host(host),
            Some(gpu) if gpu < cluster.hosts[host].gpus => Place::Gpu(host, gpu),
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
