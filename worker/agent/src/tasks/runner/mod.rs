//! The agent's side of its supervisors: start, adoption, orders and cleanup.

mod adopt;
mod checkpoint_folders;
mod connection;
mod idle;
mod launch;
mod leftovers;
mod link;
mod removal;
mod scratch;
mod server;
mod shared_memory;
mod start;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_control::agent::DiscoveredAttempt;
use muster_model::desired::{Rendezvous, TaskAssignment};
use muster_model::heartbeat::{CheckpointReport, DamageReport};
use muster_model::ids::{GpuUuid, UnitId};
use muster_model::time::MonotonicMs;
use muster_model::timings::{Timings, lease_warning_ms};
use muster_monitor::gpu::Handover;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;

use crate::inbox::{InboxItem, Outbox};
use crate::limits::{DIRECTORIES_AT_ONCE_MAX, LEASE_EXTENSION_MS_MIN};
use crate::metrics;
use crate::tasks::accounts::Accounts;
use crate::tasks::container_engine::FoundEngine;
use crate::tasks::cpus::CpuLedger;
use crate::tasks::start_spans::StartSpans;
pub(crate) use adopt::rebooted;
use checkpoint_folders::CheckpointFolders;
use idle::IdleSupervisors;
use link::Orders;
use muster_supervisor::container::{self, ContainerRemains};
use muster_supervisor::isolation::shared_memory::remove_unless_used;
use muster_supervisor::lease::clock::LeaseClock;
use muster_supervisor::{
    AgentRequest, CgroupHost, Cgroups, DeviceNumber, LogLimits, RunId, TaskDirectory, TaskSpec,
    files,
};
use scratch::ScratchFolders;
use server::SupervisorServer;
pub(crate) use shared_memory::SharedMemoryHost;
use start::Start;

/// Orders to begin and to stop that wait for one supervisor: of several orders to stop, only those that
/// shorten the grace period matter.
const ORDERS_WAITING_MAX: usize = 16;
/// Time that a release waits for a supervisor to end before it removes the directory anyway.
const RELEASE_MAX: Duration = Duration::from_secs(30);

/// Paths and limits of tasks on this host.
#[derive(Clone, Debug)]
pub(crate) struct RunnerConfig {
    /// The program with the subcommand `supervise`.
    pub(crate) supervisor: PathBuf,
    /// Directory of all tasks' directories.
    pub(crate) tasks: PathBuf,
    /// Directory of all logs.
    pub(crate) logs: PathBuf,
    /// Directory of all checkpoints.
    pub(crate) checkpoints: PathBuf,
    /// Whether no other host uses that.
    pub(crate) checkpoints_are_local: bool,
    /// Interval between scans of a checkpoint directory, in milliseconds.
    pub(crate) checkpoint_scan_ms: u64,
    /// Limits of kept output.
    pub(crate) log_limits: LogLimits,
    /// Where cgroups are created; none if disabled or unavailable.
    pub(crate) cgroups: Option<CgroupHost>,
    /// Where attempts have private shared memory; the host's is used if none.
    pub(crate) shared_memory: Option<SharedMemoryHost>,
    /// The folder of private shared memory, also of earlier settings: unused segments in it are removed.
    pub(crate) shared_memory_folder: Option<PathBuf>,
    /// Whether tasks are limited to their CPUs even if others are idle.
    pub(crate) cpu_quota: bool,
    /// Hardware that is divided among tasks.
    pub(crate) hardware: Hardware,
    /// Whether the host was rebooted since the last agent: then no process of its tasks is alive.
    pub(crate) rebooted: bool,
    /// The host's folder of secrets.
    pub(crate) secrets: Option<PathBuf>,
    /// Folder in memory.
    pub(crate) run: PathBuf,
    /// Accounts that tasks run as.
    pub(crate) accounts: Accounts,
    /// The container engine, while the host has one.
    pub(crate) engine: watch::Receiver<Option<FoundEngine>>,
}

/// Hardware that is assigned to single tasks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hardware {
    /// CPUs of bound tasks.
    pub(crate) cpus: CpuLedger,
    /// Device numbers of the GPUs.
    pub(crate) devices: BTreeMap<GpuUuid, DeviceNumber>,
}

/// All supervisors of this host.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    config: Arc<RunnerConfig>,
    server: Arc<SupervisorServer>,
    idle: IdleSupervisors,
    scratch: ScratchFolders,
    checkpoint_folders: CheckpointFolders,
    handover: Handover,
    /// Limits concurrent use of the disk of task directories.
    disk: Arc<Semaphore>,
    /// Limits the removal of checkpoints to one at a time: their file system may hang.
    removals: Arc<Semaphore>,
    clock: LeaseClock,
    /// Heartbeat interval in milliseconds, as last requested by a leader.
    heartbeat_ms: Arc<AtomicU64>,
    inbox: Outbox,
    handles: Arc<Mutex<BTreeMap<RunId, Handle>>>,
    start_spans: StartSpans,
    /// Releases in progress: their directories must not be reused before they end.
    releases: Arc<Mutex<BTreeMap<RunId, JoinHandle<()>>>>,
}

/// The agent's handle of one supervisor.
#[derive(Debug)]
struct Handle {
    deadline_boottime_ms: watch::Sender<u64>,
    /// The gang's current rendezvous; none if unknown.
    rendezvous: watch::Sender<Option<Rendezvous>>,
    requests: mpsc::Sender<AgentRequest>,
    task: JoinHandle<ConnectionEnd>,
}

/// State of an ended connection, for the cleanup.
#[derive(Debug, Default)]
struct ConnectionEnd {
    /// Whether the supervisor continues and keeps the cgroups of this task.
    keeps_cgroups: bool,
    /// The task's specification; none if an earlier agent started it.
    spec: Option<Box<TaskSpec>>,
}

impl Runner {
    /// A runner without supervisors.
    pub(crate) fn new(
        config: RunnerConfig,
        handover: Handover,
        clock: LeaseClock,
        inbox: Outbox,
    ) -> Self {
        let server = SupervisorServer::new(config.supervisor.clone(), config.tasks.clone());
        // Beside the task directories, which may be in memory: files of tasks must not be there.
        let scratch = ScratchFolders::below(config.tasks.with_file_name("scratch"));
        // Folders are only reused among tasks of one account.
        let are_handed_on = config.checkpoints_are_local && !config.accounts.are_others();
        let checkpoint_folders = CheckpointFolders::below(&config.checkpoints, are_handed_on);
        Self {
            scratch,
            checkpoint_folders,
            config: Arc::new(config),
            server: Arc::new(server),
            idle: IdleSupervisors::default(),
            handover,
            disk: Arc::new(Semaphore::new(DIRECTORIES_AT_ONCE_MAX)),
            removals: Arc::new(Semaphore::new(1)),
            clock,
            heartbeat_ms: Arc::new(AtomicU64::new(Timings::default().heartbeat_ms)),
            inbox,
            handles: Arc::default(),
            releases: Arc::default(),
            start_spans: StartSpans::default(),
        }
    }

    /// Trace spans of starts in progress.
    pub(crate) const fn start_spans(&self) -> &StartSpans {
        &self.start_spans
    }

    /// Sets the heartbeat interval requested by a leader.
    pub(crate) fn set_heartbeat_interval(&self, heartbeat_ms: u64) {
        self.heartbeat_ms.store(heartbeat_ms, Ordering::Relaxed);
    }

    /// Starts a supervisor; its reports arrive in the inbox.
    pub(crate) fn start(&self, assignment: TaskAssignment, deadline: MonotonicMs) {
        let id = RunId::of(&assignment);
        let release = self.releases().remove(&id);
        let start = Start {
            id,
            lease_warning_ms: lease_warning_ms(
                assignment.stop_grace_ms,
                assignment.partition_grace_ms,
                self.heartbeat_ms.load(Ordering::Relaxed),
            ),
            release,
            cpus: self.config.hardware.cpus.grant(&assignment),
            assignment,
            config: Arc::clone(&self.config),
            server: Arc::clone(&self.server),
            idle: self.idle.clone(),
            scratch: self.scratch.clone(),
            checkpoint_folders: self.checkpoint_folders.clone(),
            handover: self.handover.clone(),
            disk: Arc::clone(&self.disk),
        };
        let deadline_boottime_ms = self.clock.to_boottime_ms(deadline);
        self.hold(id, deadline_boottime_ms, |orders, inbox| {
            start.run(orders, inbox)
        });
    }

    /// Extends a lease; ignored if the task is not held any more.
    pub(crate) fn extend(&self, id: RunId, deadline: MonotonicMs) {
        let deadline_ms = self.clock.to_boottime_ms(deadline);
        if let Some(handle) = self.handles().get(&id) {
            handle.deadline_boottime_ms.send_if_modified(|known| {
                let is_worth_it = deadline_ms >= known.saturating_add(LEASE_EXTENSION_MS_MIN);
                if is_worth_it {
                    *known = deadline_ms;
                }
                is_worth_it
            });
        }
    }

    /// Asks a task to stop; ignored if it is not held any more.
    pub(crate) fn stop(&self, id: RunId, reason: String, grace_ms: u64) {
        if let Some(handle) = self.handles().get(&id) {
            let request = AgentRequest::Stop { reason, grace_ms };
            if handle.requests.try_send(request).is_err() {
                tracing::debug!(%id, "no supervisor accepts the order to stop");
            }
        }
    }

    /// Lets a prepared task begin; ignored if it is not held any more.
    pub(crate) fn begin(&self, id: RunId, master_port: u16) {
        if let Some(handle) = self.handles().get(&id) {
            let request = AgentRequest::Begin { master_port };
            if handle.requests.try_send(request).is_err() {
                tracing::debug!(%id, "no supervisor accepts the order to begin");
            }
        }
    }

    /// Sends a task the new rendezvous of its gang; ignored if it is not held any more.
    pub(crate) fn renew(&self, id: RunId, rendezvous: Rendezvous) {
        if let Some(handle) = self.handles().get(&id) {
            handle.rendezvous.send_replace(Some(rendezvous));
        }
    }

    /// Suspends or resumes a task's processes; ignored if it is not held any more.
    pub(crate) fn suspend(&self, id: RunId, suspended: bool) {
        if let Some(handle) = self.handles().get(&id) {
            let request = match suspended {
                true => AgentRequest::Suspend,
                false => AgentRequest::Resume,
            };
            if handle.requests.try_send(request).is_err() {
                tracing::debug!(%id, "no supervisor accepts the order to suspend or resume");
            }
        }
    }

    /// Announces an exec session to a task's supervisor; ignored if it is not held any more.
    pub(crate) fn announce_exec(&self, id: RunId) {
        if let Some(handle) = self.handles().get(&id)
            && handle.requests.try_send(AgentRequest::OpenExec).is_err()
        {
            tracing::debug!(%id, "no supervisor accepts the announcement of an exec session");
        }
    }

    /// Releases a supervisor and removes the files of its task.
    pub(crate) fn release(&self, id: RunId) {
        let handle = self.handles().remove(&id);
        let directory = TaskDirectory::below(&self.config.tasks, id);
        let (disk, scratch) = (Arc::clone(&self.disk), self.scratch.clone());
        let folders = self.checkpoint_folders.clone();
        let mut releases = self.releases();
        let earlier = releases.remove(&id);
        releases.retain(|_, release| !release.is_finished());
        let release = tokio::spawn(async move {
            ended(earlier).await;
            let mut left = ConnectionEnd::default();
            if let Some(handle) = handle {
                let Ok(gone) = tokio::time::timeout(RELEASE_MAX, handle.task).await else {
                    tracing::warn!(%id, "a released supervisor does not end: its task cannot be killed");
                    return;
                };
                left = gone.unwrap_or_default();
            }
            let _turn = disk.acquire().await;
            clear(directory, scratch, folders, left).await;
        });
        releases.insert(id, release);
    }

    /// Removes a checkpoint that its unit does not keep any more.
    pub(crate) fn remove_checkpoint(&self, unit: UnitId, path: String, kept: Vec<String>) {
        let directory = launch::checkpoint_directory(&self.config, unit);
        let UnitId { job, unit } = unit;
        let turns = Arc::clone(&self.removals);
        tokio::spawn(async move {
            let _turn = turns.acquire().await;
            let name = path.clone();
            let removal = move || removal::remove(&directory, Path::new(&name), &kept);
            match tokio::task::spawn_blocking(removal).await {
                Ok(Ok(was_there)) => {
                    tracing::info!(%job, %unit, path, was_there, "removed a checkpoint");
                    metrics::checkpoint_removed("removed");
                }
                Ok(Err(error)) => {
                    tracing::warn!(%job, %unit, path, %error, "removing a checkpoint failed");
                    metrics::checkpoint_removed("left");
                }
                Err(error) => {
                    tracing::error!(%job, %unit, path, %error, "a checkpoint removal was aborted")
                }
            }
        });
    }

    /// Adopts the tasks of earlier agents of this host: see [`adopt`].
    pub(crate) async fn adopt(&self) -> std::io::Result<Adopted> {
        adopt::adopt(self).await
    }

    fn hold<F>(&self, id: RunId, deadline_ms: u64, body: impl FnOnce(Orders, Outbox) -> F)
    where
        F: Future<Output = ConnectionEnd> + Send + 'static,
    {
        let (deadline_boottime_ms, deadlines) = watch::channel(deadline_ms);
        let (rendezvous, meetings) = watch::channel(None);
        let (requests, waiting) = mpsc::channel(ORDERS_WAITING_MAX);
        let orders = Orders::new(deadlines, meetings, waiting);
        let task = tokio::spawn(body(orders, self.inbox.clone()));
        let handle = Handle {
            deadline_boottime_ms,
            rendezvous,
            requests,
            task,
        };
        self.handles().insert(id, handle);
    }

    fn releases(&self) -> MutexGuard<'_, BTreeMap<RunId, JoinHandle<()>>> {
        self.releases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn handles(&self) -> MutexGuard<'_, BTreeMap<RunId, Handle>> {
        self.handles.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tasks of earlier agents of this host.
#[derive(Debug, Default)]
pub(crate) struct Adopted {
    /// Every attempt with a directory.
    pub(crate) found: Vec<DiscoveredAttempt>,
    /// Checkpoints that they committed.
    pub(crate) checkpoints: Vec<(RunId, CheckpointReport)>,
    /// Checkpoints that they could not read.
    pub(crate) damaged: Vec<(RunId, DamageReport)>,
    /// Their last reported steps.
    pub(crate) progress: Vec<(RunId, u64)>,
}

/// Waits until an earlier release of the same attempt, if there is one, has ended.
async fn ended(release: Option<JoinHandle<()>>) {
    if let Some(release) = release
        && let Err(error) = release.await
    {
        tracing::warn!(%error, "releasing a task failed");
    }
}

/// Removes a task's directory, cgroups and secrets, and takes its scratch folder back. Its supervisor may
/// keep the cgroups.
async fn clear(
    directory: TaskDirectory,
    scratch: ScratchFolders,
    folders: CheckpointFolders,
    left: ConnectionEnd,
) {
    let cleared = tokio::task::spawn_blocking(move || {
        let known = left.spec.map(|spec| *spec);
        if let Some(spec) = known.or_else(|| directory.read_spec().ok().flatten()) {
            if !left.keeps_cgroups {
                Cgroups::at(&spec.cgroups()).remove();
            }
            if spec.assignment.rank.world_size <= 1 {
                folders.take_back(&spec.checkpoint_directory, RunId::of(&spec.assignment));
            }
            if spec.assignment.execution.container.is_some() {
                clear_container(&directory, &spec);
            }
            // Before the shared memory, whose removal other tasks of the attempt may delay.
            if let Some(secrets) = &spec.secrets.target {
                files::remove_directory(secrets)
                    .map_err(|error| (directory.path().to_owned(), error))?;
            }
            if let Some(place) = &spec.confinement.shared_memory {
                remove_unless_used(&place.folder).map_err(|error| (place.folder.clone(), error))?;
            }
        }
        let folder = scratch.of(&directory);
        directory
            .remove()
            .and_then(|()| folder.map_or(Ok(()), |folder| scratch.take_back(&folder)))
            .map_err(|error| (directory.path().to_owned(), error))
    });
    if let Ok(Err((path, error))) = cleared.await {
        tracing::warn!(path = %path.display(), %error, "removing a task's directory failed");
    }
}

/// Removes an engine's remains of a task's container: its own records, and cgroups in hierarchies that
/// Muster does not use.
fn clear_container(directory: &TaskDirectory, spec: &TaskSpec) {
    let left = match container::end(directory) {
        Ok(ContainerRemains::Nothing) => None,
        Ok(ContainerRemains::PossiblyAlive(why)) => Some(why),
        Err(error) => Some(error.to_string()),
    };
    if let Some(why) = left {
        // The next agent finds it in the engine's list.
        tracing::warn!(path = %directory.path().display(), why, "a task's container still exists");
    }
    for path in spec.cgroups() {
        Cgroups::likewise(&path).remove();
    }
}

/// Sends to the decision loop; if that has ended, the process is about to end too.
async fn send(inbox: &Outbox, incoming: InboxItem) {
    if inbox.send(incoming).await.is_err() {
        tracing::debug!("the agent is ending: a supervisor's report is left to the next one");
    }
}
