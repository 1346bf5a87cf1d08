//! Traces used in the evaluation.

use std::path::{Path, PathBuf};

use muster_simulate::trace::{
    Cluster, Outage, Quota, TraceJob, read_jobs, read_outages, read_quotas,
};
use muster_simulate::{Scenario, Settings};

use crate::Failure;

/// The virtual clusters for which Philly's trace is complete, with their quotas in GPUs.
pub(super) const COMPLETE_CLUSTERS: [&str; 4] = ["7f04ca", "ee9e8c", "2869ce", "0e4a51"];
/// Hosts with 8 GPUs of Philly's cluster by the quotas of the Helios authors: 2,816 GPUs.
const HOSTS_OF_PHILLY: u32 = 352;
/// Hosts with 8 GPUs that cover the quotas of these clusters: 256, 512, 128 and 256 GPUs.
const HOSTS_OF_COMPLETE: u32 = 144;

/// Hosts covered by the outages, including those without one.
const HOSTS_OF_OUTAGES: usize = 400;

const GPUS_PER_HOST: u32 = 8;

pub(super) struct Traces {
    folder: PathBuf,
}

impl Traces {
    pub(super) const fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    fn path(&self, name: &str) -> Result<PathBuf, Failure> {
        let path = self.folder.join(name);
        match path.exists() {
            true => Ok(path),
            false => Err(format!(
                "{} not found: pass its folder with --traces",
                path.display()
            )
            .into()),
        }
    }

    fn philly_jobs(&self) -> Result<Vec<TraceJob>, Failure> {
        let path = self.path("philly_jobs.csv.gz")?;
        Ok(read_jobs(&path, 0, usize::MAX)?)
    }

    fn philly_quotas(&self) -> Result<Vec<Quota>, Failure> {
        Ok(read_quotas(&self.path("philly_vcs.csv")?)?)
    }

    /// All of Philly's jobs on all of its hosts.
    pub(super) fn philly(&self, settings: Settings) -> Result<Scenario, Failure> {
        let cluster = Cluster::uniform(HOSTS_OF_PHILLY, GPUS_PER_HOST, "V100");
        let scenario = Scenario::new(cluster, self.philly_jobs()?, &[], settings);
        Ok(scenario.with_quotas(self.philly_quotas()?))
    }

    /// Philly's complete virtual clusters on as many hosts as their quotas cover, with outages if
    /// requested.
    pub(super) fn complete(
        &self,
        settings: Settings,
        outages: &[Outage],
    ) -> Result<Scenario, Failure> {
        let cluster = Cluster::uniform(HOSTS_OF_COMPLETE, GPUS_PER_HOST, "V100");
        let scenario = Scenario::new(cluster, self.philly_jobs()?, outages, settings);
        let scenario = scenario.with_quotas(self.philly_quotas()?);
        Ok(scenario.of_queues(&COMPLETE_CLUSTERS))
    }

    /// All of Philly's jobs on the first hosts of Lingjun's racks and pods, as many as the outages cover.
    pub(super) fn philly_in_lingjun(&self, settings: Settings) -> Result<Scenario, Failure> {
        let mut cluster = Cluster::read(&self.path("lingjun2023_cluster.csv")?)?;
        cluster.hosts.truncate(HOSTS_OF_OUTAGES);
        let scenario = Scenario::new(cluster, self.philly_jobs()?, &[], settings);
        Ok(scenario.with_quotas(self.philly_quotas()?))
    }

    /// Outages of real hosts.
    pub(super) fn outages(&self) -> Result<Vec<Outage>, Failure> {
        let path = self.path("infinitehbd_node_faults_first_half.csv.gz")?;
        Ok(read_outages(&path)?)
    }

    /// openb, all jobs at once.
    pub(super) fn openb(&self) -> Result<Scenario, Failure> {
        let cluster = Cluster::read(&self.path("alibaba2023_openb_cluster.csv")?)?;
        let jobs = self.path("alibaba2023_openb_jobs.csv.gz")?;
        let jobs = read_jobs(Path::new(&jobs), 0, usize::MAX)?;
        let settings = Settings {
            packing: true,
            ..Settings::default()
        };
        Ok(Scenario::new(cluster, jobs, &[], settings))
    }
}
