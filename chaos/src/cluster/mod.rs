//! Cluster of real processes on loopback or in a network that supports partitions: replicas and workers of
//! the built binary, each with its own folder, log file and configuration file, killed and restarted
//! individually.

mod certificates;
mod faults;
mod folder;
mod machines;
mod member;
mod network;
pub(crate) mod observer;
mod process;
mod ready;
mod reaper;
pub(crate) mod testbed;
pub mod timeline;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::{fs, io};

use certificates::Certificates;
pub(crate) use faults::NamedProcess;
pub use faults::{
    DOUBLE_BIT_XID, Disruption, Fault, LibraryCommands, NamedAgent, OFF_THE_BUS_XID, Part,
    UnfitProcess, flip_bit, set_gpu_error,
};
use faults::{SmallDisk, build_library};
pub use folder::ClusterFolder;
pub use machines::PendingReplica;
use machines::{Machine, Machines, Spare, host_address};
pub use member::Member;
use muster_client::{Client, ClientConfig, ClientError, TlsSettings};
use muster_model::ids::ReplicaId;
use muster_model::timings::Timings;
use muster_ports::ReservedAddresses;
use muster_proto::v1;
use muster_scheduler::{LogSettings, RaftTimings, SchedulerConfig};
use muster_worker::monitor::gpu::{GpuBackend as _, NvmlBackend};
use muster_worker::{GpuConfig, HealthConfig, RunAs, TasksConfig, WorkerConfig};
use network::Network;
pub(crate) use network::raise_loopback;
pub use network::{Direction, NetworkError, NetworkKind};
pub use observer::EventTimeout;
pub use process::ManagedProcess;
pub use ready::TestbedError;
pub use reaper::{StillAlive, is_alive, kill_all, processes_of};

/// Memory of a simulated GPU.
const GPU_MEMORY_MIB: u64 = 81_920;
/// Name of every local cluster.
pub const CLUSTER_ID: &str = "local";

/// Settings of a local cluster.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Path of the `muster` binary.
    pub binary: PathBuf,
    /// Binary of the workers, if different.
    pub worker_binary: Option<PathBuf>,
    /// Number of initial scheduler replicas.
    pub replicas: usize,
    /// Whether there is a machine for one more replica, see [`LocalCluster::start_spare`].
    pub spare: bool,
    /// Number of workers, each on its own host.
    pub workers: usize,
    /// Simulated GPUs per host.
    pub gpus_per_host: u32,
    /// Whether the first host has the machine's real GPUs, through NVML.
    pub real_gpus: bool,
    /// Model of the simulated GPUs.
    pub gpu_model: String,
    /// Heartbeat and lease timings.
    pub timings: Timings,
    /// Raft timings.
    pub raft: RaftTimings,
    /// Log retention.
    pub log: LogSettings,
    /// Admins of a cluster without authentication.
    pub admins: BTreeSet<String>,
    /// Whether the folder is kept afterwards.
    pub keep: bool,
    /// Network that can isolate replicas and workers; `None` for direct connections.
    pub network: Option<NetworkKind>,
    /// Whether replicas and workers have certificates, see [`LocalCluster::admin_tls`].
    pub secured: bool,
    /// Whether the fault library is preloaded into the initial replicas, see [`LocalCluster::command_library`].
    pub fault_library: bool,
}

/// Heartbeat and lease timings of small clusters: short enough to watch.
pub const SMALL_TIMINGS: Timings = Timings {
    heartbeat_ms: 500,
    suspect_ms: 2_000,
    lost_ms: 5_000,
};

impl ClusterOptions {
    /// Three replicas and four workers with eight simulated GPUs each, with short timings: a silent host is
    /// suspect after 2 s and lost after 5 s.
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
            fault_library: false,
        }
    }

    fn program_of_workers(&self) -> &Path {
        self.worker_binary.as_ref().unwrap_or(&self.binary)
    }
}

/// Number of real GPUs that this machine's driver reports; 0 without a driver.
#[must_use]
pub fn real_gpus() -> usize {
    NvmlBackend::open(&BTreeMap::new()).map_or(0, |backend| backend.inventory().len())
}

/// Failure to run a local cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// A file, folder or process could not be created or ended.
    #[error("{operation}")]
    Io {
        /// The failed operation.
        operation: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Processes survived the end of the cluster.
    #[error(transparent)]
    StillAlive(#[from] StillAlive),
    /// The network between the hosts failed.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// There is no spare machine, or it is occupied.
    #[error("the cluster was made without a spare machine (`ClusterOptions::spare`)")]
    NoSpare,
    /// The fault library could not be compiled.
    #[error("`cc` cannot compile the fault library: {0}")]
    Library(String),
}

fn failed(operation: impl Into<String>) -> impl FnOnce(io::Error) -> ClusterError {
    let operation = operation.into();
    move |source| ClusterError::Io { operation, source }
}

/// A running cluster; dropping it kills all its processes.
#[derive(Debug)]
pub struct LocalCluster {
    /// Disks that can be filled. Declared before the folder: they are unmounted before it is removed.
    disks: Vec<SmallDisk>,
    options: ClusterOptions,
    folder: ClusterFolder,
    network: Option<Network>,
    certificates: Certificates,
    /// Machines of the replicas.
    seats: Vec<Machine>,
    metrics: Vec<SocketAddr>,
    worker_metrics: Vec<SocketAddr>,
    replicas: Vec<Member>,
    /// Ids of the replicas.
    ids: Vec<ReplicaId>,
    /// Last assigned id; ids are never reused.
    newest_id: ReplicaId,
    spare: Option<Spare>,
    /// Held until the processes have ended.
    _ports: Option<ReservedAddresses>,
    workers: Vec<Member>,
}

impl LocalCluster {
    /// Writes the configuration and starts every process; does not wait until they are ready. A network of
    /// proxies needs a runtime.
    ///
    /// # Errors
    /// [`ClusterError`] names the process and the operation.
    pub fn start(options: ClusterOptions) -> Result<Self, ClusterError> {
        let mut cluster = Self::prepare(options)?;
        let network = cluster.network.as_ref();
        for member in &mut cluster.replicas {
            member.start(&cluster.options.binary, network)?;
        }
        for member in &mut cluster.workers {
            member.start(cluster.options.program_of_workers(), network)?;
        }
        Ok(cluster)
    }

    /// Writes the configuration without starting anything.
    fn prepare(options: ClusterOptions) -> Result<Self, ClusterError> {
        let folder = ClusterFolder::create(options.keep).map_err(failed("creating a folder"))?;
        let certificates = Certificates::make(options.secured, folder.path())?;
        let places = Machines::of(&options)?;
        let network = options.network.map(|kind| places.network(kind));
        let network = network.transpose()?;
        let library = options.fault_library;
        let library = library.then(|| build_library(folder.path())).transpose()?;
        let mut cluster = Self {
            disks: Vec::new(),
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
            _ports: places.ports,
            workers: Vec::new(),
        };
        for index in 0..cluster.options.replicas {
            cluster.found_replica(index, library.as_deref())?;
        }
        for index in 0..cluster.options.workers {
            cluster.add_worker(index)?;
        }
        Ok(cluster)
    }

    /// gRPC addresses of all replicas, running or not.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        { self.seats.iter() }
            .map(|seat| seat.address.to_string())
            .collect()
    }

    /// Connects a client of all replicas, in a cluster without certificates.
    ///
    /// # Errors
    /// If an address is invalid.
    pub async fn client(&self) -> Result<Client, ClientError> {
        connect(self.addresses()).await
    }

    /// Connects a client of one replica only, in a cluster without certificates.
    ///
    /// # Errors
    /// If the address is invalid.
    pub async fn client_of(&self, replica: usize) -> Result<Client, ClientError> {
        connect(vec![self.seats[replica].address.to_string()]).await
    }

    /// Position of the leader that a status names.
    #[must_use]
    pub fn leader_in(&self, status: &v1::GetStatusResponse) -> Option<usize> {
        let mut ids = self.ids.iter();
        ids.position(|id| Some(id.get()) == status.leader_id)
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

    /// The cluster folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The folder shared by all hosts, for checkpoints.
    #[must_use]
    pub fn shared_folder(&self) -> PathBuf {
        self.folder.path().join("shared")
    }

    /// Keeps the folder after the cluster has ended.
    pub fn keep(&mut self) {
        self.folder.keep();
    }

    /// The replicas, initially in order of their ids from 1; a renewed replica has a new id in the same
    /// position.
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

    /// Restarts a replica on its existing data.
    ///
    /// # Errors
    /// If the binary cannot be started.
    pub fn start_replica(&mut self, index: usize) -> Result<(), ClusterError> {
        self.replicas[index].start(&self.options.binary, self.network.as_ref())
    }

    /// Stops a replica gracefully.
    ///
    /// # Errors
    /// If it cannot be stopped.
    pub fn stop_replica(&mut self, index: usize) -> Result<(), ClusterError> {
        self.replicas[index].stop()
    }

    /// Stops a replica gracefully and starts another program on its data.
    ///
    /// # Errors
    /// If the old one cannot be stopped or the new one cannot be started.
    pub fn upgrade_replica(&mut self, index: usize, program: &Path) -> Result<(), ClusterError> {
        self.replicas[index].stop()?;
        self.replicas[index].start(program, self.network.as_ref())
    }

    /// Whether a replica's process runs.
    ///
    /// # Errors
    /// If the kernel does not know the process.
    pub fn is_replica_running(&mut self, index: usize) -> Result<bool, ClusterError> {
        self.replicas[index].is_running()
    }

    /// Ends every process but keeps the folder, whose contents are final from then on.
    ///
    /// # Errors
    /// If a process survives, or if the network failed at some time.
    pub fn shutdown(&mut self) -> Result<(), ClusterError> {
        for member in self.workers.iter_mut().chain(&mut self.replicas) {
            member.stop()?;
        }
        kill_all(self.folder.path())?;
        self.network.iter().try_for_each(Network::check)?;
        Ok(())
    }

    /// Stops a worker's agent gracefully and starts another program in its place; its supervisors and tasks
    /// keep running.
    ///
    /// # Errors
    /// If the old one cannot be stopped or the new one cannot be started.
    pub fn upgrade_worker(&mut self, index: usize, program: &Path) -> Result<(), ClusterError> {
        self.workers[index].stop()?;
        self.workers[index].start(program, self.network.as_ref())
    }

    /// Ends everything, unmounts the small disks, and removes the folder unless it is kept.
    ///
    /// # Errors
    /// If a process survives or the folder cannot be removed.
    pub fn stop(mut self) -> Result<(), ClusterError> {
        self.shutdown()?;
        self.disks.clear();
        let removed = self.take_folder()?.remove();
        removed.map_err(failed("removing the cluster's folder"))?;
        Ok(())
    }

    /// The host with the machine's real GPUs, if there is one.
    #[must_use]
    pub fn real_gpu_host(&self) -> Option<&str> {
        let first = self.workers.first()?;
        self.options.real_gpus.then_some(&first.name)
    }

    fn take_folder(&mut self) -> Result<ClusterFolder, ClusterError> {
        let empty = ClusterFolder::create(false).map_err(failed("creating a folder"))?;
        Ok(std::mem::replace(&mut self.folder, empty))
    }

    fn add_worker(&mut self, index: usize) -> Result<(), ClusterError> {
        let host = self.options.replicas + index;
        let member = self.member("worker", format!("node{:02}", index + 1), host)?;
        let address = host_address(self.options.network, host);
        let tls = self.certificates.of_worker(&member.name)?;
        // Tasks run as the user who starts the cluster, even root: its submitters have no accounts on this
        // machine.
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
            // An older build may not know this setting.
            metrics_listen: (self.options.worker_binary.is_none())
                .then_some(self.worker_metrics[index]),
            ..WorkerConfig::default()
        };
        member.configure(&config)?;
        self.workers.push(member);
        Ok(())
    }

    /// TLS settings of a client with all rights: the certificate of a replica. Default settings in a
    /// cluster without certificates.
    #[must_use]
    pub fn admin_tls(&self) -> TlsSettings {
        self.certificates.settings("replica-1")
    }

    /// Only the host with the machine's real GPUs monitors the machine: its full disk must not affect the
    /// other hosts.
    fn health_of(&self, worker: usize) -> HealthConfig {
        let has_real_gpus = self.options.real_gpus && worker == 0;
        // An older build may not know how to disable monitoring.
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
        fs::create_dir_all(&folder).map_err(failed(format!("creating {}", folder.display())))?;
        fs::create_dir_all(self.shared_folder()).map_err(failed("creating the shared folder"))?;
        Ok(Member {
            name,
            folder,
            role,
            host,
            fault_library: None,
            process: None,
        })
    }
}

async fn connect(addresses: Vec<String>) -> Result<Client, ClientError> {
    let config = ClientConfig {
        discover: false,
        ..ClientConfig::new(addresses)
    };
    Client::connect(config).await
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        // Also reached after a panic: no started process may remain.
        if let Err(error) = kill_all(self.folder.path()) {
            tracing::error!(%error, "processes of the local cluster are still running");
        }
    }
}
