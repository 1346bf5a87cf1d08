//! A cluster of real processes on loopback, or in a network that can be cut: replicas and workers of the built binary, each
//! with a folder, a log file and a configuration file of its own, killed and started again one by one.

mod certificates;
mod folder;
mod links;
mod member;
mod network;
mod ports;
mod process;
mod seats;
mod small_disk;
mod sweep;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use certificates::Certificates;
pub use folder::ClusterFolder;
pub use member::Member;
use muster_client::TlsSettings;
use muster_model::ids::ReplicaId;
use muster_model::timings::Timings;
use muster_scheduler::{LogSettings, RaftTimings, SchedulerConfig};
use muster_worker::gpu::{GpuBackend as _, NvmlBackend};
use muster_worker::{GpuConfig, HealthConfig, RunAs, TasksConfig, WorkerConfig};
use network::Network;
pub(crate) use network::raise_loopback;
pub use network::{Direction, NetworkError, NetworkKind};
pub use ports::free_addresses;
pub use process::ManagedProcess;
pub use seats::Newcomer;
use seats::{Places, Seat, Spare, host_address};
pub use small_disk::SmallDisk;
pub use sweep::{StillAlive, is_alive, kill_all, processes_of};

/// Memory of a simulated GPU.
const GPU_MEMORY_MIB: u64 = 81_920;
/// The name of every local cluster.
pub const CLUSTER_ID: &str = "local";

/// Shape of a local cluster.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The `muster` binary.
    pub binary: PathBuf,
    /// The one that workers run, if it is another.
    pub worker_binary: Option<PathBuf>,
    /// Scheduler replicas that found the cluster.
    pub replicas: usize,
    /// Whether there is a machine for one more replica, see [`LocalCluster::start_spare`].
    pub spare: bool,
    /// Workers, each a host of its own.
    pub workers: usize,
    /// Simulated GPUs of each host.
    pub gpus_per_host: u32,
    /// Whether the first host has the machine's real GPUs, through NVML.
    pub real_gpus: bool,
    /// Model of the simulated GPUs.
    pub gpu_model: String,
    /// Heartbeats and leases.
    pub timings: Timings,
    /// Clocks of the replication.
    pub raft: RaftTimings,
    /// How much of the log is kept.
    pub log: LogSettings,
    /// Its admins, as long as nobody has to prove who they are.
    pub admins: BTreeSet<String>,
    /// Whether the folder stays afterwards.
    pub keep: bool,
    /// What stands between replicas and workers, so that they can be cut off; none: nothing.
    pub network: Option<NetworkKind>,
    /// Whether replicas and workers have certificates, see [`LocalCluster::admin_tls`].
    pub secured: bool,
    /// A library that is loaded into every replica before all others. It finds its orders in [`Member::orders`].
    pub preload: Option<PathBuf>,
}

/// Heartbeats and leases of small clusters: fast enough to watch.
pub const SMALL_TIMINGS: Timings = Timings {
    beat_ms: 500,
    suspect_ms: 2_000,
    lost_ms: 5_000,
};

impl ClusterOptions {
    /// Three replicas and four workers with eight simulated GPUs each, and clocks fast enough to watch:
    /// a silent host is suspect after 2 s and lost after 5 s.
    #[must_use]
    pub fn small(binary: PathBuf) -> Self {
        Self {
            binary,
            worker_binary: None,
            replicas: 3,
            spare: false,
            workers: 4,
            gpus_per_host: 8,
            real_gpus: false,
            gpu_model: "H100".to_owned(),
            timings: SMALL_TIMINGS,
            raft: RaftTimings::QUICK,
            log: LogSettings::default(),
            admins: SchedulerConfig::default().admins,
            keep: false,
            network: None,
            secured: false,
            preload: None,
        }
    }

    fn program_of_workers(&self) -> &Path {
        self.worker_binary.as_ref().unwrap_or(&self.binary)
    }
}

/// Number of real GPUs that the driver of this machine knows; 0 without a driver.
#[must_use]
pub fn real_gpus() -> usize {
    NvmlBackend::open(&BTreeMap::new()).map_or(0, |backend| backend.inventory().len())
}

/// A cluster that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A file, a folder or a process cannot be made or ended.
    #[error("{operation}")]
    Io {
        /// What was tried.
        operation: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Processes survive their end.
    #[error(transparent)]
    StillAlive(#[from] StillAlive),
    /// The hosts' network.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// Every machine has its replica.
    #[error("the cluster was made without a spare machine (`ClusterOptions::spare`)")]
    NoSpare,
}

fn failed(operation: impl Into<String>) -> impl FnOnce(io::Error) -> ClusterError {
    let operation = operation.into();
    move |source| ClusterError::Io { operation, source }
}

/// A running cluster; dropping it kills what it started.
#[derive(Debug)]
pub struct LocalCluster {
    options: ClusterOptions,
    folder: ClusterFolder,
    network: Option<Network>,
    certificates: Certificates,
    /// The replicas' machines.
    seats: Vec<Seat>,
    metrics: Vec<SocketAddr>,
    worker_metrics: Vec<SocketAddr>,
    replicas: Vec<Member>,
    /// Their ids.
    ids: Vec<ReplicaId>,
    /// The last one that was given: ids are never used again.
    newest_id: ReplicaId,
    spare: Option<Spare>,
    workers: Vec<Member>,
}

impl LocalCluster {
    /// Writes the configuration and starts every process; does not wait for them to be ready.
    ///
    /// # Errors
    /// [`ClusterError`] names the process and the operation.
    pub fn start(options: ClusterOptions) -> Result<Self, ClusterError> {
        Self::prepare(options)?.started()
    }

    /// Writes the configuration, and starts nothing yet. A network of proxies needs a runtime.
    ///
    /// # Errors
    /// [`ClusterError`] names the operation.
    pub fn prepare(options: ClusterOptions) -> Result<Self, ClusterError> {
        let folder = ClusterFolder::create(options.keep).map_err(failed("making a folder"))?;
        let certificates = Certificates::make(options.secured, folder.path())?;
        let places = Places::of(&options)?;
        let network = options.network.map(|kind| places.network(kind));
        let network = network.transpose()?;
        let mut cluster = Self {
            options,
            certificates,
            folder,
            network,
            metrics: places.replicas.iter().map(|seat| seat.metrics).collect(),
            worker_metrics: places.workers.iter().map(|seat| seat.metrics).collect(),
            seats: places.replicas,
            replicas: Vec::new(),
            ids: Vec::new(),
            newest_id: ReplicaId(0),
            spare: places.spare.map(Spare::on),
            workers: Vec::new(),
        };
        for index in 0..cluster.options.replicas {
            cluster.found_replica(index)?;
        }
        for index in 0..cluster.options.workers {
            cluster.add_worker(index)?;
        }
        Ok(cluster)
    }

    /// Starts every process of a cluster that was prepared.
    ///
    /// # Errors
    /// [`ClusterError`] names the process.
    pub fn started(mut self) -> Result<Self, ClusterError> {
        let network = self.network.as_ref();
        for member in &mut self.replicas {
            member.start(&self.options.binary, network)?;
        }
        for member in &mut self.workers {
            member.start(self.options.program_of_workers(), network)?;
        }
        Ok(self)
    }

    /// gRPC addresses by which all replicas are called, running or not.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        { self.seats.iter() }
            .map(|seat| seat.address.to_string())
            .collect()
    }

    /// Prometheus addresses of all replicas.
    #[must_use]
    pub fn metrics(&self) -> &[SocketAddr] {
        &self.metrics
    }

    /// Prometheus addresses of all workers.
    #[must_use]
    pub fn worker_metrics(&self) -> &[SocketAddr] {
        &self.worker_metrics
    }

    /// The folder that holds everything.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The folder that all hosts share, for checkpoints.
    #[must_use]
    pub fn shared_folder(&self) -> PathBuf {
        self.folder.path().join("shared")
    }

    /// Lets the folder stay when the cluster is gone.
    pub fn keep(&mut self) {
        self.folder.keep();
    }

    /// The replicas: at first in order of their ids from 1; one that was renewed has a new id in its old place.
    #[must_use]
    pub fn replicas(&self) -> &[Member] {
        &self.replicas
    }

    /// The workers.
    #[must_use]
    pub fn workers(&self) -> &[Member] {
        &self.workers
    }

    /// Kills a replica (`kill -9`).
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn kill_replica(&mut self, index: usize) -> Result<(), ClusterError> {
        self.replicas[index].kill()
    }

    /// Starts a replica again, on the data it left.
    ///
    /// # Errors
    /// If the binary cannot be started.
    pub fn start_replica(&mut self, index: usize) -> Result<(), ClusterError> {
        self.replicas[index].start(&self.options.binary, self.network.as_ref())
    }

    /// Ends a replica in good order.
    ///
    /// # Errors
    /// If it cannot be ended.
    pub fn stop_replica(&mut self, index: usize) -> Result<(), ClusterError> {
        self.replicas[index].stop()
    }

    /// Ends a replica in good order and starts another program on its data.
    ///
    /// # Errors
    /// If the one cannot be ended or the other cannot be started.
    pub fn upgrade_replica(&mut self, index: usize, program: &Path) -> Result<(), ClusterError> {
        self.replicas[index].stop()?;
        self.replicas[index].start(program, self.network.as_ref())
    }

    /// Whether a replica's process runs.
    ///
    /// # Errors
    /// If the kernel does not know it.
    pub fn is_replica_running(&mut self, index: usize) -> Result<bool, ClusterError> {
        self.replicas[index].is_running()
    }

    /// Kills a worker's agent alone; its supervisors and tasks go on.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn kill_agent(&mut self, index: usize) -> Result<(), ClusterError> {
        self.workers[index].kill()
    }

    /// Kills a whole host: agent, supervisors and tasks; returns how many processes that were.
    ///
    /// # Errors
    /// If some survive.
    pub fn kill_host(&mut self, index: usize) -> Result<usize, ClusterError> {
        self.workers[index].kill()?;
        Ok(1 + kill_all(&self.workers[index].folder)?)
    }

    /// Starts a worker's agent again, on the data it left.
    ///
    /// # Errors
    /// If the binary cannot be started.
    pub fn start_worker(&mut self, index: usize) -> Result<(), ClusterError> {
        self.workers[index].start(self.options.program_of_workers(), self.network.as_ref())
    }

    /// Ends every process and leaves the folder; what is read from it then changes no more.
    ///
    /// # Errors
    /// If a process survives, or if the network did not do its work at some time.
    pub fn halt(&mut self) -> Result<(), ClusterError> {
        for member in self.workers.iter_mut().chain(&mut self.replicas) {
            member.stop()?;
        }
        kill_all(self.folder.path())?;
        self.network.iter().try_for_each(Network::check)?;
        Ok(())
    }

    /// Ends a worker's agent in good order and starts another program in its place; its supervisors and tasks go on.
    ///
    /// # Errors
    /// If the one cannot be ended or the other cannot be started.
    pub fn upgrade_worker(&mut self, index: usize, program: &Path) -> Result<(), ClusterError> {
        self.workers[index].stop()?;
        self.workers[index].start(program, self.network.as_ref())
    }

    /// Ends everything, replicas in good order first, and removes the folder unless it is to be kept.
    ///
    /// # Errors
    /// If a process survives or the folder cannot be removed.
    pub fn stop(mut self) -> Result<(), ClusterError> {
        self.halt()?;
        let removed = self.take_folder()?.remove();
        removed.map_err(failed("removing the cluster's folder"))?;
        Ok(())
    }

    /// The host with the machine's real GPUs, if any has.
    #[must_use]
    pub fn real_gpu_host(&self) -> Option<&str> {
        let first = self.workers.first()?;
        self.options.real_gpus.then_some(&first.name)
    }

    fn take_folder(&mut self) -> Result<ClusterFolder, ClusterError> {
        let empty = ClusterFolder::create(false).map_err(failed("making a folder"))?;
        Ok(std::mem::replace(&mut self.folder, empty))
    }

    fn add_worker(&mut self, index: usize) -> Result<(), ClusterError> {
        let host = self.options.replicas + index;
        let member = self.member("worker", format!("node{:02}", index + 1), host)?;
        let address = host_address(self.options.network, host);
        let tls = self.certificates.of_worker(&member.name)?;
        // Whoever starts this cluster runs its tasks, also if that is root: its users have no accounts on this machine.
        let tasks = TasksConfig {
            run_as: RunAs::Agent,
            allow_root: true,
            ..TasksConfig::default()
        };
        let config = WorkerConfig {
            name: Some(member.name.clone()),
            address: Some(address.to_string()),
            schedulers: self.addresses(),
            tls,
            tasks,
            data_dir: member.data(),
            checkpoint_root: Some(self.shared_folder().join("checkpoints")),
            gpus: self.gpus_of(index),
            health: self.health_of(index),
            // Another build may not know it.
            metrics_listen: (self.options.worker_binary.is_none())
                .then_some(self.worker_metrics[index]),
            ..WorkerConfig::default()
        };
        member.configure(&config)?;
        self.workers.push(member);
        Ok(())
    }

    /// What a client shows that may do everything: the certificate of a replica. Nothing in a cluster without certificates.
    #[must_use]
    pub fn admin_tls(&self) -> TlsSettings {
        self.certificates.settings("replica-1")
    }

    /// The machine is looked at on behalf of the host that has its GPUs: its full disk is none of the others'.
    fn health_of(&self, worker: usize) -> HealthConfig {
        let has_real_gpus = self.options.real_gpus && worker == 0;
        // Another build may not know how to leave it.
        if has_real_gpus || self.options.worker_binary.is_some() {
            return HealthConfig::default();
        }
        HealthConfig::of_a_simulated_host()
    }

    fn gpus_of(&self, worker: usize) -> GpuConfig {
        if self.options.real_gpus && worker == 0 {
            return GpuConfig::Nvml;
        }
        GpuConfig::Simulated {
            count: self.options.gpus_per_host,
            model: self.options.gpu_model.clone(),
            memory_mib: GPU_MEMORY_MIB,
            timeline: None,
            pci_addresses: Vec::new(),
        }
    }

    fn member(
        &self,
        role: &'static str,
        name: String,
        host: usize,
    ) -> Result<Member, ClusterError> {
        let folder = self.folder.path().join(&name);
        fs::create_dir_all(&folder).map_err(failed(format!("making {}", folder.display())))?;
        fs::create_dir_all(self.shared_folder()).map_err(failed("making the shared folder"))?;
        Ok(Member {
            name,
            folder,
            role,
            host,
            preload: None,
            process: None,
        })
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        // Also reached when something panics: whatever was started must not stay.
        if let Err(error) = kill_all(self.folder.path()) {
            tracing::error!(%error, "processes of the local cluster are left");
        }
    }
}
