//! A cluster of real processes to measure, with a client.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use muster_chaos::cluster::{ClusterOptions, LocalCluster};
use muster_client::{Client, ClientConfig, TlsSettings};
use muster_model::access::Role;
use muster_model::timings::Timings;
use muster_proto::v1;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use crate::load::{Until, closed_loop};
use crate::options::Bench;
use crate::{cpu, specs};

/// Longest wait for a cluster to start, or for a replica to catch up.
const TIMEOUT: Duration = Duration::from_secs(120);
/// Pause between two checks of the cluster.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Log entries that a caught-up replica may be behind: some are in flight under load.
const LAG_ENTRIES_MAX: u64 = 256;
/// Replicas of every measured cluster.
pub(crate) const REPLICAS: usize = 3;
/// The user whose token is used with a secured cluster.
const USER: &str = "bench";
/// Submits in flight while jobs are loaded.
const LOADING_IN_FLIGHT: usize = 256;

/// Workers of a measured cluster, besides its replicas.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Real workers.
    pub(crate) workers: usize,
    /// Simulated GPUs of each worker.
    pub(crate) gpus_per_host: u32,
}

impl Shape {
    /// No workers.
    pub(crate) const REPLICAS_ONLY: Self = Self {
        workers: 0,
        gpus_per_host: 0,
    };
}

/// A running cluster.
pub(crate) struct Testbed {
    cluster: LocalCluster,
    client: Client,
}

impl Testbed {
    /// Starts three replicas and the workers, with the product's default timings, and waits for a leader and
    /// for every worker.
    pub(crate) async fn start(bench: &Bench, shape: Shape) -> anyhow::Result<Self> {
        Self::start_as(bench, shape, false).await
    }

    /// Like [`Testbed::start`], with certificates, and a client that presents a user's token.
    pub(crate) async fn start_secured(bench: &Bench, shape: Shape) -> anyhow::Result<Self> {
        let mut testbed = Self::start_as(bench, shape, true).await?;
        let admin = testbed.client.clone();
        let (token, _) = admin
            .add_user("bench", USER, Role::User, Vec::new())
            .await?;
        let config = admin.config().clone();
        let tls = TlsSettings {
            ca: config.tls.ca.clone(),
            ..TlsSettings::default()
        };
        let config = ClientConfig {
            tls,
            token: Some(token),
            ..config
        };
        testbed.client = Client::connect(config).await?;
        Ok(testbed)
    }

    async fn start_as(bench: &Bench, shape: Shape, secured: bool) -> anyhow::Result<Self> {
        let cluster = LocalCluster::start(ClusterOptions {
            replicas: REPLICAS,
            workers: shape.workers,
            gpus_per_host: shape.gpus_per_host,
            secured,
            timings: Timings::default(),
            ..ClusterOptions::small(bench.binary.clone())
        })?;
        let config = ClientConfig {
            deadline: TIMEOUT,
            per_try_deadline: Duration::from_secs(30),
            backoff_max: Duration::from_millis(100),
            tls: cluster.admin_tls(),
            ..ClientConfig::new(cluster.addresses())
        };
        let client = Client::connect(config)
            .await
            .with_context(|| format!("reaching the cluster in {}", cluster.folder().display()))?;
        let testbed = Self { cluster, client };
        testbed.await_caught_up().await?;
        let workers = u32::try_from(shape.workers)?;
        testbed
            .await_status("all workers", |status| {
                status.hosts.is_some_and(|hosts| hosts.up >= workers)
            })
            .await?;
        testbed.client.discover().await?;
        Ok(testbed)
    }

    /// A client of all replicas with long timeouts.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Addresses of all replicas.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.cluster.addresses()
    }

    /// Address of a replica's metrics.
    pub(crate) fn metrics(&self, index: usize) -> SocketAddr {
        self.cluster.metrics()[index]
    }

    /// A client of only one replica.
    pub(crate) async fn client_of(&self, index: usize) -> anyhow::Result<Client> {
        let config = ClientConfig {
            discover: false,
            deadline: TIMEOUT,
            backoff_base: Duration::from_millis(5),
            backoff_max: Duration::from_millis(20),
            tls: self.cluster.admin_tls(),
            ..ClientConfig::new([self.addresses()[index].clone()])
        };
        Ok(Client::connect(config).await?)
    }

    /// Index of the leader.
    pub(crate) async fn leader(&self) -> anyhow::Result<usize> {
        let status = self
            .await_status("a leader", |status| status.leader_id.is_some())
            .await?;
        let id = status.leader_id.context("no leader")?;
        Ok(usize::try_from(id)? - 1)
    }

    /// Process ids of the replicas that run.
    pub(crate) fn pids(&self) -> Vec<i32> {
        let replicas = self.cluster.replicas().iter();
        replicas.filter_map(|replica| replica.pid()).collect()
    }

    /// Process id of one replica.
    pub(crate) fn pid(&self, index: usize) -> anyhow::Result<i32> {
        self.cluster.replicas()[index]
            .pid()
            .context("the replica does not run")
    }

    /// Processor time of all running replicas.
    pub(crate) fn cpu(&self) -> anyhow::Result<Duration> {
        cpu::used_by_all(&self.pids())
    }

    /// Kills a replica without waiting for its end; [`Testbed::await_end`] waits.
    pub(crate) fn kill(&self, index: usize) -> anyhow::Result<()> {
        let pid = Pid::from_raw(self.pid(index)?).context("a process id is not 0")?;
        kill_process(pid, Signal::KILL).context("killing a replica")
    }

    /// Waits for the end of a killed replica.
    pub(crate) fn await_end(&mut self, index: usize) -> anyhow::Result<()> {
        Ok(self.cluster.kill_replica(index)?)
    }

    /// Restarts a dead replica.
    pub(crate) fn restart(&mut self, index: usize) -> anyhow::Result<()> {
        Ok(self.cluster.start_replica(index)?)
    }

    /// Waits until the status fulfils a condition.
    pub(crate) async fn await_status(
        &self,
        what: &str,
        is_reached: impl Fn(&v1::GetStatusResponse) -> bool,
    ) -> anyhow::Result<v1::GetStatusResponse> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let status = self.client.status(v1::Consistency::Linearizable).await?;
            if is_reached(&status) {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!(
                    "waited {} s for {what}; status of the cluster: {status:?}",
                    TIMEOUT.as_secs()
                );
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Waits until every replica has caught up with the leader.
    pub(crate) async fn await_caught_up(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            // Only the leader knows the progress of the others.
            let leader = self.leader().await?;
            let client = self.client_of(leader).await?;
            let status = client.status(v1::Consistency::Stale).await?;
            if is_caught_up(&status) {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "the replicas have not caught up after {} s: {:?}",
                TIMEOUT.as_secs(),
                status.replicas
            );
            sleep(POLL_INTERVAL).await;
        }
    }

    /// Submits `count` jobs of one task each, every one with a request id of its own.
    pub(crate) async fn load_jobs(&self, count: u64, spec: v1::JobSpec) -> anyhow::Result<()> {
        let client = self.client.clone();
        closed_loop(LOADING_IN_FLIGHT, Until::Done(count), move |_| {
            let (client, spec) = (client.clone(), spec.clone());
            async move {
                client.submit_job(spec).await?;
                Ok(())
            }
        })
        .await?;
        Ok(())
    }

    /// Fills every GPU of small simulated hosts with one job, so that all later jobs wait behind it as on a
    /// busy cluster.
    pub(crate) async fn fill(&self, gpus: u32) -> anyhow::Result<()> {
        let mut filler = specs::array(gpus, 1);
        filler.priority = specs::PRIORITY_FIRST;
        self.client.submit_job(filler).await?;
        self.await_status("a full cluster", |status| {
            status
                .gpus
                .is_some_and(|counts| counts.held == u64::from(gpus))
        })
        .await?;
        Ok(())
    }

    /// Ends all processes and removes their files.
    pub(crate) fn stop(self) -> anyhow::Result<()> {
        Ok(self.cluster.stop()?)
    }
}

fn is_caught_up(status: &v1::GetStatusResponse) -> bool {
    let others = status
        .replicas
        .iter()
        .filter(|replica| Some(replica.id) != status.leader_id);
    let (all, close) = others.fold((0, 0), |(all, close), replica| {
        let is_close = replica.matched_index.is_some()
            && replica
                .lag_entries
                .is_some_and(|lag| lag <= LAG_ENTRIES_MAX);
        (all + 1, close + usize::from(is_close))
    });
    all + 1 == REPLICAS && close == all
}
