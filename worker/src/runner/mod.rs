//! The agent's side of its supervisors: starts them, finds them again, passes orders on, cleans up.

mod adopt;
mod launch;
mod leftovers;
mod link;
mod server;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use muster_core::agent::{Found, SupervisorReport};
use muster_core::beat::CheckpointReport;
use muster_core::desired::TaskAssignment;
use muster_core::time::MonotonicMs;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::JoinHandle;

use crate::inbox::{Incoming, Outbox};
use crate::limits::{DIRECTORIES_AT_ONCE_MAX, LEASE_EXTENSION_MS_MIN};
use link::{Link, Orders};
use muster_supervisor::RunId;
use muster_supervisor::clock::LeaseClock;
use muster_supervisor::{AgentRequest, Cgroup, LogLimits, TaskDirectory};
use server::SupervisorServer;

/// Orders to begin and to stop that wait for one supervisor: more than one of those to stop matter only if each shortens
/// the grace.
const ORDERS_WAITING_MAX: usize = 16;
/// How long a release waits for a supervisor to go before it removes the directory anyway.
const RELEASE_MAX: Duration = Duration::from_secs(30);

/// Where and how tasks run on this host.
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
    /// Milliseconds between two looks at a checkpoint directory.
    pub(crate) checkpoint_scan_ms: u64,
    /// How much output is kept.
    pub(crate) log_limits: LogLimits,
    /// Where cgroups can be made.
    pub(crate) cgroup_root: Option<PathBuf>,
}

/// All supervisors of this host.
#[derive(Clone, Debug)]
pub(crate) struct Runner {
    config: Arc<RunnerConfig>,
    server: Arc<SupervisorServer>,
    /// Who may use the disk of the tasks' directories.
    disk: Arc<Semaphore>,
    clock: LeaseClock,
    inbox: Outbox,
    handles: Arc<Mutex<BTreeMap<RunId, Handle>>>,
    /// Releases under way: until one has ended, its directory is not there for anybody else.
    releases: Arc<Mutex<BTreeMap<RunId, JoinHandle<()>>>>,
}

/// One supervisor as the agent holds it.
#[derive(Debug)]
struct Handle {
    deadline_boottime_ms: watch::Sender<u64>,
    requests: mpsc::Sender<AgentRequest>,
    task: JoinHandle<()>,
}

impl Runner {
    /// A runner without any supervisors yet.
    pub(crate) fn new(config: RunnerConfig, clock: LeaseClock, inbox: Outbox) -> Self {
        let server = SupervisorServer::new(config.supervisor.clone(), config.tasks.clone());
        Self {
            config: Arc::new(config),
            server: Arc::new(server),
            disk: Arc::new(Semaphore::new(DIRECTORIES_AT_ONCE_MAX)),
            clock,
            inbox,
            handles: Arc::default(),
            releases: Arc::default(),
        }
    }

    /// Starts a supervisor; what becomes of it comes to the inbox.
    pub(crate) fn start(&self, assignment: TaskAssignment, deadline: MonotonicMs) {
        let id = RunId::of(&assignment);
        let deadline_boottime_ms = self.clock.to_boottime_ms(deadline);
        let config = Arc::clone(&self.config);
        let (server, disk) = (Arc::clone(&self.server), Arc::clone(&self.disk));
        let release = self.releases().remove(&id);
        self.hold(id, deadline_boottime_ms, |orders, inbox| async move {
            ended(release).await;
            let directory = TaskDirectory::below(&config.tasks, id);
            let turn = disk.acquire().await;
            let launched = tokio::task::spawn_blocking(move || {
                launch::launch(&config, &server, assignment, deadline_boottime_ms)
            });
            let launched = launched.await;
            drop(turn);
            match launched.unwrap_or_else(|error| Err(error.into())) {
                Ok(launched) => Link::new(id, directory, orders, inbox).run(launched).await,
                Err(error) => {
                    // The host's fault (its disk is full, say), not the job's: nothing has run, and it is
                    // not counted against the job.
                    tracing::error!(%id, %error, "starting a supervisor failed");
                    let detail = format!("starting its supervisor failed: {error}");
                    let report = SupervisorReport::Vanished { detail };
                    send(&inbox, Incoming::Supervisor(id, report)).await;
                }
            }
        });
    }

    /// Pushes a lease out; one that is not held any more needs none.
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

    /// Asks a task to stop; one that is not held any more has stopped.
    pub(crate) fn stop(&self, id: RunId, reason: String, grace_ms: u64) {
        if let Some(handle) = self.handles().get(&id) {
            let request = AgentRequest::Stop { reason, grace_ms };
            if handle.requests.try_send(request).is_err() {
                tracing::debug!(%id, "the order to stop found no supervisor that takes it");
            }
        }
    }

    /// Lets a prepared task begin; one that is not held any more has ended.
    pub(crate) fn begin(&self, id: RunId, master_port: u16) {
        if let Some(handle) = self.handles().get(&id) {
            let request = AgentRequest::Begin { master_port };
            if handle.requests.try_send(request).is_err() {
                tracing::debug!(%id, "the order to begin found no supervisor that takes it");
            }
        }
    }

    /// Lets a task's processes stand still, or go on; one that is not held any more has ended.
    pub(crate) fn suspend(&self, id: RunId, suspended: bool) {
        if let Some(handle) = self.handles().get(&id) {
            let request = match suspended {
                true => AgentRequest::Suspend,
                false => AgentRequest::Resume,
            };
            if handle.requests.try_send(request).is_err() {
                tracing::debug!(%id, "the order to stand still or to go on found no supervisor that takes it");
            }
        }
    }

    /// Lets a supervisor go and removes what is left of its task.
    pub(crate) fn release(&self, id: RunId) {
        let handle = self.handles().remove(&id);
        let directory = TaskDirectory::below(&self.config.tasks, id);
        let disk = Arc::clone(&self.disk);
        let mut releases = self.releases();
        let earlier = releases.remove(&id);
        releases.retain(|_, release| !release.is_finished());
        let release = tokio::spawn(async move {
            ended(earlier).await;
            if let Some(handle) = handle
                && tokio::time::timeout(RELEASE_MAX, handle.task)
                    .await
                    .is_err()
            {
                tracing::warn!(%id, "a released supervisor does not go: its task cannot be killed");
                return;
            }
            let _turn = disk.acquire().await;
            clear(directory).await;
        });
        releases.insert(id, release);
    }

    /// Finds what earlier agents of this host left: see [`adopt`].
    pub(crate) async fn adopt(&self) -> std::io::Result<Adopted> {
        adopt::adopt(self).await
    }

    fn hold<F>(&self, id: RunId, deadline_ms: u64, body: impl FnOnce(Orders, Outbox) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (deadline_boottime_ms, deadlines) = watch::channel(deadline_ms);
        let (requests, waiting) = mpsc::channel(ORDERS_WAITING_MAX);
        let orders = Orders {
            deadlines,
            requests: waiting,
        };
        let task = tokio::spawn(body(orders, self.inbox.clone()));
        let handle = Handle {
            deadline_boottime_ms,
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

/// What earlier agents of this host left.
#[derive(Debug, Default)]
pub(crate) struct Adopted {
    /// Every attempt with a directory.
    pub(crate) found: Vec<Found>,
    /// Checkpoints that they committed.
    pub(crate) checkpoints: Vec<(RunId, CheckpointReport)>,
}

/// Waits until an earlier release of the same attempt, if there is one, has ended.
async fn ended(release: Option<JoinHandle<()>>) {
    if let Some(release) = release
        && let Err(error) = release.await
    {
        tracing::warn!(%error, "releasing a task failed");
    }
}

/// Removes a task's directory and cgroup.
async fn clear(directory: TaskDirectory) {
    let cleared = tokio::task::spawn_blocking(move || {
        if let Some(path) = directory
            .read_spec()
            .ok()
            .flatten()
            .and_then(|spec| spec.cgroup)
        {
            Cgroup::at(&path).remove();
        }
        directory
            .remove()
            .map_err(|error| (directory.path().to_owned(), error))
    });
    if let Ok(Err((path, error))) = cleared.await {
        tracing::warn!(path = %path.display(), %error, "removing a task's directory failed");
    }
}

/// Sends to the decision loop; if that has ended, the process is about to end too.
async fn send(inbox: &Outbox, incoming: Incoming) {
    if inbox.send(incoming).await.is_err() {
        tracing::debug!("the agent is ending: a supervisor's report is left to the next one");
    }
}
