//! Assembly of the agent: recovery first, then the loops.

mod resources;
mod startup_progress;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use muster_control::agent::{Agent, DiscoveredAttempt, Input, JournalRecord};
use muster_model::command::HostRegistration;
use muster_model::ids::GpuUuid;
use muster_monitor::gpu::{
    GpuConfig, GpuMemory, GpuMonitor, GpuOccupancy, GpuSensors, GpuUsage, Handover,
};
use muster_monitor::health;
use muster_monitor::replicas::{KnownReplicas, ReplicaAccess};
use muster_monitor::reports::{ReportSender, report_channel};
use muster_monitor::topology::PciAddress;
use muster_service::systemd::Systemd;
use muster_supervisor::lease::clock::LeaseClock;
use muster_supervisor::{CgroupHost, Controller, RunId};
use resources::HostResources;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::{CgroupUse, SharedMemoryUse, WorkerConfig};
use crate::connection::session::SessionKeeper;
use crate::connection::{etcd, joining};
use crate::driver::{Driver, Executor, SelfChecks};
use crate::error::Error;
use crate::identity::{DataDirectory, Machine};
use crate::inbox::inbox;
use crate::journal::Journal;
use crate::metrics_page;
use crate::tasks::accounts::{self, Accounts, AccountsError, RunAs, open_to_accounts};
use crate::tasks::container_engine::{EngineFinder, FoundEngine};
use crate::tasks::directories;
use crate::tasks::exec::Execs;
use crate::tasks::logs::{LogShipping, Shipper};
use crate::tasks::runner::{self, Hardware, Runner, RunnerConfig, SharedMemoryHost};

/// Folder in memory that every host has.
const MEMORY: &str = "/dev/shm";
/// Controllers needed where cgroups are required.
const LIMITING: [Controller; 3] = [Controller::Cpu, Controller::Memory, Controller::Pids];
/// The program of the crate `muster-supervisor`.
const SUPERVISOR_PROGRAM: &str = "muster-supervise";

/// Runs a worker's agent until `shutdown` completes. Its tasks continue under their leases, and the next
/// agent on the same data directory takes them over.
///
/// # Errors
/// The reason why it did not start or had to stop.
pub async fn run(
    config: WorkerConfig,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    let (_, settings) = watch::channel(config);
    run_reloading(settings, shutdown).await
}

/// Like [`run`], with settings that change: reloadable options are read when they are used.
///
/// # Errors
/// As [`run`].
pub async fn run_reloading(
    settings: watch::Receiver<WorkerConfig>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    let config = settings.borrow().clone();
    config.validate()?;
    let machine = Machine::inspect().map_err(system("inspecting the machine"))?;
    let data = take_data(&config, &machine)?;
    let accounts = accounts(&config, &data)?;
    let stop = CancellationToken::new();
    metrics_page::serve(config.metrics_listen, &stop).await?;
    let mut resources = HostResources::prepare(&config, &data, machine).await?;
    let label = accounts
        .label()
        .map(|label| (accounts::LABEL.to_owned(), label));
    resources.host.labels.extend(label);
    let replicas = KnownReplicas::open(config.schedulers.clone(), data.replicas());
    etcd::learn(&config, replicas.clone(), &stop)?;
    let mut shutdown = Box::pin(shutdown);
    let outcome = tokio::select! {
        // A joining worker may wait a while for its certificate.
        () = &mut shutdown => Ok(None),
        dialer = joining::dialer(&config, data.path(), &replicas, &resources.host.name) => dialer.map(Some),
    };
    let outcome = match outcome {
        Ok(Some(dialer)) => {
            let access = ReplicaAccess { replicas, dialer };
            let loops =
                Loops::assemble(config, settings, access, &data, resources, accounts, &stop).await;
            match loops {
                Ok(loops) => loops.run(shutdown).await,
                Err(error) => Err(error),
            }
        }
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    stop.cancel();
    directories::clean_up(&data);
    outcome
}

/// The loops of an agent after recovery, before they run.
struct Loops {
    driver: Driver,
    executor: Executor,
    keeper: SessionKeeper,
    /// The agent's first actions.
    actions: Vec<muster_control::agent::Action>,
    /// Events from the time without an agent.
    late: Vec<Input>,
}

impl Loops {
    async fn assemble(
        config: WorkerConfig,
        settings: watch::Receiver<WorkerConfig>,
        access: ReplicaAccess,
        data: &DataDirectory,
        resources: HostResources,
        accounts: Accounts,
        stop: &CancellationToken,
    ) -> Result<Self, Error> {
        let (host, gpus) = (resources.host, resources.gpus);
        let clock = LeaseClock::start();
        let (outbox, incoming) = inbox();
        let (report_sender, reports) = report_channel();
        let engines = watch_engine(&config, data, stop).await;
        let (handover, uses) = handover(&config, resources.memory, report_sender.clone());
        let tasks = runner_config(&config, data, resources.hardware, accounts, engines.clone())?;
        let runner = Runner::new(tasks, handover, clock, outbox.clone());
        let (journal, records) = Journal::open(&data.journal())?;
        let (agent, actions, late) = recover(&runner, data, records).await?;
        let watched = health::Gpus {
            unopened: resources.unopened,
            ..gpus_to_watch(&gpus, resources.addresses, resources.sensors, uses.clone())
        };
        let dialer = access.dialer.clone();
        let context = monitor_context(data, &host, clock, access.clone(), &config);
        let health = health::start(&config.health, context, watched, report_sender, stop);
        // The reboot was handled everywhere, and no task has started.
        data.mark_reboot_handled()?;
        let (executor, handle) = Executor::new(journal, runner.clone(), health.orders());
        let (newest, accepted) = watch::channel(agent.leader());
        let keeper = SessionKeeper::new(host, engines, access, outbox, accepted, stop.clone());
        let driver = Driver {
            agent,
            clock,
            inbox: incoming,
            reports,
            execs: Execs::new(runner.clone(), data.tasks(), dialer),
            runner,
            executor: handle,
            gpu_occupancy: GpuOccupancy::new(gpus.inventory(), config.health.job_mapping),
            gpus,
            uses,
            health,
            self_checks: SelfChecks::default(),
            newest,
            logs: data.logs(),
            settings,
            ships: config.log_shipping.is_some(),
            tasks: data.tasks(),
            systemd: resources.systemd,
            shutdown: stop.clone(),
        };
        ship(config.log_shipping, resources.name, data, stop.clone());
        Ok(Self {
            driver,
            executor,
            keeper,
            actions,
            late,
        })
    }

    /// Runs until `shutdown` completes or a loop fails.
    async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        let mut driver = self.driver;
        let executor = tokio::spawn(self.executor.run());
        driver.apply_recovery(self.actions, self.late).await?;
        // The state of the last agent is taken over.
        driver.systemd.iter().for_each(Systemd::notify_ready);
        tokio::select! {
            () = shutdown => Ok(()),
            outcome = self.keeper.run() => outcome,
            outcome = driver.run() => outcome,
            _ = executor => Err(Error::Ended("executor")),
        }
    }
}

/// The handover of GPUs, with the configured wait for their memory, and the record of their usage.
fn handover(
    config: &WorkerConfig,
    memory: Arc<dyn GpuMemory>,
    reports: ReportSender,
) -> (Handover, GpuUsage) {
    let wait_max = Duration::from_millis(config.gpu_memory_wait_ms);
    let uses = GpuUsage::default();
    let handover = Handover::new(memory, wait_max, reports, uses.clone());
    (handover, uses)
}

/// Discovers the container engine of this host now and periodically until `stop`.
async fn watch_engine(
    config: &WorkerConfig,
    data: &DataDirectory,
    stop: &CancellationToken,
) -> watch::Receiver<Option<FoundEngine>> {
    let finder = engine_finder(config, data);
    let (engine, engines) = watch::channel(finder.find(None).await);
    tokio::spawn(finder.watch(engine, stop.clone()));
    engines
}

/// Properties of the host for the health monitor.
fn monitor_context(
    data: &DataDirectory,
    host: &HostRegistration,
    clock: LeaseClock,
    access: ReplicaAccess,
    config: &WorkerConfig,
) -> health::MonitorContext {
    health::MonitorContext {
        host: host.name.clone(),
        data: data.path().to_owned(),
        boot_id: host.boot_id.clone(),
        rebooted: data.rebooted(),
        clock,
        access,
        runs_containers: config.container_engine.runs_containers(),
    }
}

/// The GPUs for the health monitor.
fn gpus_to_watch(
    monitor: &GpuMonitor,
    addresses: BTreeMap<GpuUuid, PciAddress>,
    sensors: Box<dyn GpuSensors>,
    uses: GpuUsage,
) -> health::Gpus {
    health::Gpus {
        described: monitor.inventory().to_vec(),
        addresses,
        sensors,
        injector: monitor.injector(),
        is_simulated: monitor.is_simulated(),
        uses,
        unopened: None,
    }
}

/// Locks the data directory and sets up the place of task directories.
fn take_data(config: &WorkerConfig, machine: &Machine) -> Result<DataDirectory, Error> {
    let data = DataDirectory::lock(&config.data_dir, &machine.boot_id)?;
    let memory = run_directory(config, &data);
    directories::set_up(&data, &memory, config.run_dir.is_some())
        .map_err(system("creating the directory of all tasks"))?;
    Ok(data)
}

/// The accounts of tasks; sets the permissions of folders accordingly.
fn accounts(config: &WorkerConfig, data: &DataDirectory) -> Result<Accounts, Error> {
    let mut accounts = Accounts::open(&config.tasks, config.has_certificates())?;
    if accounts.are_others() {
        let run = run_directory(config, data);
        let opened = open_to_accounts(data, &run, config.checkpoint_root.as_deref());
        match (opened, &config.tasks.run_as) {
            // Not configured explicitly, so an upgrade must not keep the agent from starting.
            (Err(error), RunAs::Auto) => accounts.close(&error),
            (opened, _) => opened.map_err(AccountsError::from)?,
        }
    }
    Ok(accounts)
}

/// Ships output until `stop`, if configured.
fn ship(
    shipping: Option<LogShipping>,
    host: String,
    data: &DataDirectory,
    stop: CancellationToken,
) {
    let shipping =
        shipping.map(|shipping| Shipper::new(shipping, host, data.logs(), data.tasks()).run());
    tokio::spawn(stop.run_until_cancelled_owned(OptionFuture::from(shipping)));
}

impl Driver {
    /// Processes what recovery found: GPUs, checkpoints committed while no agent ran, and supervisors that
    /// must end.
    async fn apply_recovery(
        &mut self,
        actions: Vec<muster_control::agent::Action>,
        late: Vec<Input>,
    ) -> Result<(), Error> {
        self.carry_out(actions).await?;
        for change in self.gpus.all() {
            self.gpu_health_changed(change).await?;
        }
        for input in late {
            self.step(input).await?;
        }
        Ok(())
    }
}

/// The agent's state from the journal, with the supervisors that survived.
async fn recover(
    runner: &Runner,
    data: &DataDirectory,
    records: Vec<JournalRecord>,
) -> Result<(Agent, Vec<muster_control::agent::Action>, Vec<Input>), Error> {
    let adopted = runner.adopt().await.map_err(|source| Error::Adoption {
        path: data.tasks(),
        source,
    })?;
    tracing::info!(
        tasks = adopted.found.len(),
        records = records.len(),
        incarnation = data.incarnation(),
        "recovered the state of the last agent"
    );
    let mut found = adopted.found;
    if data.rebooted() {
        found.extend(lost_by_reboot(&records, &found));
    }
    let (agent, actions) = Agent::recover(records, found);
    let checkpoints = adopted
        .checkpoints
        .into_iter()
        .map(|(RunId { key, epoch }, report)| Input::Checkpoint { key, epoch, report });
    let damaged = adopted
        .damaged
        .into_iter()
        .map(|(RunId { key, epoch }, report)| Input::Damaged { key, epoch, report });
    let progress = adopted
        .progress
        .into_iter()
        .map(|(RunId { key, epoch }, step)| Input::Progress { key, epoch, step });
    let late = checkpoints.chain(damaged).chain(progress);
    Ok((agent, actions, late.collect()))
}

/// Attempts in the journal without a directory: it was in memory.
fn lost_by_reboot(
    records: &[JournalRecord],
    found: &[DiscoveredAttempt],
) -> Vec<DiscoveredAttempt> {
    let mut held = BTreeMap::new();
    for record in records {
        match record {
            JournalRecord::Starting(assignment) => held.insert(assignment.key, assignment.epoch),
            JournalRecord::Released { key, .. } => held.remove(key),
            _ => None,
        };
    }
    let is_found = |run: &RunId| {
        found
            .iter()
            .any(|it| (it.key, it.epoch) == (run.key, run.epoch))
    };
    let lost = held.into_iter().map(|(key, epoch)| RunId { key, epoch });
    lost.filter(|run| !is_found(run))
        .map(runner::rebooted)
        .collect()
}

fn engine_finder(config: &WorkerConfig, data: &DataDirectory) -> EngineFinder {
    let has_real_gpus = !matches!(config.gpus, GpuConfig::Simulated { .. });
    EngineFinder::new(
        &config.container_engine,
        config.registry_auth_file.clone(),
        data.mark(),
        has_real_gpus,
        data.tasks(),
    )
}

fn runner_config(
    config: &WorkerConfig,
    data: &DataDirectory,
    hardware: Hardware,
    accounts: Accounts,
    engine: watch::Receiver<Option<FoundEngine>>,
) -> Result<RunnerConfig, Error> {
    let supervisor = match &config.supervisor {
        Some(path) => path.clone(),
        None => supervisor_beside(std::env::current_exe().map_err(system("finding this program"))?),
    };
    let root = config
        .checkpoint_root
        .clone()
        .unwrap_or_else(|| data.path().join("checkpoints"));
    std::fs::create_dir_all(&root).map_err(system("creating the checkpoint root"))?;
    let checkpoints = absolute(root)?;
    Ok(RunnerConfig {
        supervisor,
        tasks: data.tasks(),
        logs: data.logs(),
        checkpoints_are_local: config.checkpoint_root.is_none(),
        checkpoint_scan_ms: config.checkpoint_scan_ms,
        log_limits: config.task_log_limits(),
        accounts,
        engine,
        cgroups: cgroups(config.cgroups, data)?,
        shared_memory: shared_memory(config, data, &checkpoints),
        shared_memory_folder: shared_memory_folder(data),
        checkpoints,
        cpu_quota: config.cpu_quota,
        hardware,
        rebooted: data.rebooted(),
        secrets: config.secrets_dir.clone(),
        run: run_directory(config, data),
    })
}

/// A folder in memory that no other worker uses.
fn run_directory(config: &WorkerConfig, data: &DataDirectory) -> PathBuf {
    let chosen = config.run_dir.clone();
    chosen.unwrap_or_else(|| PathBuf::from(MEMORY).join(format!("muster-{}", data.mark())))
}

/// Where attempts have private shared memory, if configured and possible in memory.
fn shared_memory(
    config: &WorkerConfig,
    data: &DataDirectory,
    checkpoints: &Path,
) -> Option<SharedMemoryHost> {
    if config.shared_memory == SharedMemoryUse::Host {
        return None;
    }
    let (run, tasks) = (run_directory(config, data), data.tasks());
    let places = [&*run, &*tasks, data.path(), checkpoints];
    SharedMemoryHost::find(shared_memory_folder(data), &places)
        .inspect_err(|error| tracing::warn!(%error, "tasks of this host share its /dev/shm"))
        .ok()
}

/// The folder in memory for private shared memory of attempts; none if task directories are on a disk.
fn shared_memory_folder(data: &DataDirectory) -> Option<PathBuf> {
    let tasks = directories::in_memory(data)?;
    Some(tasks.with_file_name(directories::shared_memory(data)))
}

/// Where cgroups of tasks are created, if configured.
fn cgroups(wanted: CgroupUse, data: &DataDirectory) -> Result<Option<CgroupHost>, Error> {
    if wanted == CgroupUse::Off {
        return Ok(None);
    }
    let host = CgroupHost::find(&data.mark());
    let has = |controller| host.as_ref().is_some_and(|host| host.has(controller));
    let missing: Vec<&str> = LIMITING
        .into_iter()
        .filter(|controller| !has(*controller))
        .map(Controller::name)
        .collect();
    if missing.is_empty() {
        return Ok(host);
    }
    let missing = missing.join(", ");
    if wanted == CgroupUse::Required {
        return Err(Error::Cgroups { missing });
    }
    tracing::warn!(
        missing,
        "not all resource limits of tasks are enforced on this host"
    );
    Ok(host)
}

/// The small program that only supervises, if it is installed beside this one; else this program, which can
/// do so too.
fn supervisor_beside(program: PathBuf) -> PathBuf {
    let small = program.with_file_name(SUPERVISOR_PROGRAM);
    if small.is_file() { small } else { program }
}

fn absolute(path: PathBuf) -> Result<PathBuf, Error> {
    path.canonicalize()
        .map_err(system("resolving the checkpoint root"))
}

fn system(operation: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::System { operation, source }
}
