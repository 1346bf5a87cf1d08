//! Puts the agent together: recovery before anything else, then the loops.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::future::OptionFuture;
use muster_core::agent::{Agent, Found, Input, JournalRecord};
use muster_core::command::{GpuDescription, HostRegistration};
use muster_core::ids::GpuUuid;
use muster_core::state::DRIVER_LABEL;
use muster_core::topology::LearntTree;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::{CgroupUse, GpuConfig, SharedMemoryUse, WorkerConfig};
use crate::container_engine::{EngineFinder, FoundEngine};
use crate::cpus::{CpuLayout, CpuLedger};
use crate::driver::{Driver, Executor, Health};
use crate::error::Error;
use crate::exec::Execs;
use crate::gpu::{
    FaultMemory, GpuBackend, GpuError, GpuMemory, GpuMonitor, GpuSensors, GpuUse, HandOver,
    HelpedBackend, HelperProgram, SimulatedBackend, Timeline,
};
use crate::gpu_occupancy::GpuOccupancy;
use crate::health;
use crate::identity::{DataDirectory, Machine};
use crate::inbox::{Outbox, inbox};
use crate::journal::Journal;
use crate::logs::{LogShipping, Shipper};
use crate::metrics;
use crate::runner::{self, Hardware, Runner, RunnerConfig, SharedMemoryHost};
use crate::session::SessionKeeper;
use crate::task_place;
use crate::topology::{self, PciAddress, Sysfs};
use crate::watchdog::{Watchdog, telling};
use muster_supervisor::RunId;
use muster_supervisor::clock::LeaseClock;
use muster_supervisor::{CgroupHost, Controller};

/// Where every host has a file system in memory.
const MEMORY: &str = "/dev/shm";
/// What a host must be able to limit where cgroups are required.
const LIMITING: [Controller; 3] = [Controller::Cpu, Controller::Memory, Controller::Pids];
/// The program of the crate `muster-supervisor`.
const SUPERVISOR_PROGRAM: &str = "muster-supervise";

/// Runs a worker's agent until `shutdown` completes. Its tasks go on under their leases, and the next
/// agent on the same data directory takes them over.
///
/// # Errors
/// Why it did not start, or why it had to stop.
pub async fn run(
    config: WorkerConfig,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), Error> {
    config.validate()?;
    metrics::describe();
    let machine = Machine::inspect().map_err(system("inspecting the machine"))?;
    let name = config.name.clone().unwrap_or_else(|| machine.name.clone());
    let data = take_data(&config, &machine)?;
    let watchdog = Watchdog::of_this_process();
    let gpus = open_gpus(&config.gpus, &name, watchdog.as_ref()).await?;
    let addresses = gpus.pci_addresses();
    let learnt = topology::learn(&config.topology, gpus.inventory(), &addresses);
    let hardware = hardware(&config, &*gpus, &addresses)?;
    let (memory, sensors) = (gpus.memory(), gpus.sensors());
    let monitor = GpuMonitor::start(gpus, FaultMemory::open(data.gpu_faults(), &machine.boot_id))?;
    let host = registration(&config, &data, machine, (monitor.inventory(), learnt));
    let (stop, clock) = (CancellationToken::new(), LeaseClock::start());
    let (outbox, incoming) = inbox();
    let engines = watch_engine(&config, &data, &stop).await;
    let (hand_over, uses) = hand_over(&config, memory, outbox.clone());
    let settings = runner_config((&config, &data), hardware, engines.clone())?;
    let runner = Runner::new(settings, hand_over, clock, outbox.clone());
    let (journal, records) = Journal::open(&data.journal())?;
    let (agent, actions, late) = recover(&runner, &data, records).await?;
    let watched = gpus_to_watch(&monitor, addresses, sensors, uses.clone());
    let place = place(&data, &host, clock, &config);
    let desk = health::start(&config.health, place, watched, outbox.clone(), &stop);
    let (executor, handle) = Executor::new(journal, runner.clone(), desk.orders.clone());
    let (newest, accepted) = watch::channel(agent.leader());
    let keeper = SessionKeeper::new(
        (host, engines),
        config.schedulers,
        outbox,
        accepted,
        stop.clone(),
    );
    let mut driver = Driver {
        agent,
        clock,
        inbox: incoming,
        execs: Execs::new(runner.clone(), data.tasks()),
        runner,
        executor: handle,
        gpu_occupancy: GpuOccupancy::new(monitor.inventory(), config.health.job_mapping),
        gpus: monitor,
        uses,
        health: Health::new(desk),
        newest,
        logs: data.logs(),
        retention: config.log_retention,
        ships: config.log_shipping.is_some(),
        tasks: data.tasks(),
        watchdog,
        shutdown: stop.clone(),
    };
    let executor = tokio::spawn(executor.run());
    ship(config.log_shipping, name, &data, stop.clone());
    driver.recovered(actions, late).await?;
    let outcome = tokio::select! {
        () = shutdown => Ok(()),
        outcome = keeper.run() => outcome,
        outcome = driver.run() => outcome,
        _ = executor => Err(Error::Ended("executor")),
    };
    stop.cancel();
    task_place::leave(&data);
    outcome
}

/// Who waits for the memory of GPUs that go from one task to the next, as long as the settings say; and what is remembered of
/// them then.
fn hand_over(
    config: &WorkerConfig,
    memory: Arc<dyn GpuMemory>,
    outbox: Outbox,
) -> (HandOver, GpuUse) {
    let (patience, uses) = (
        Duration::from_millis(config.gpu_memory_wait_ms),
        GpuUse::default(),
    );
    let hand_over = HandOver::new(memory, patience, (outbox, uses.clone()));
    (hand_over, uses)
}

/// What tasks are bound to and kept from.
fn hardware(
    config: &WorkerConfig,
    gpus: &dyn GpuBackend,
    addresses: &BTreeMap<GpuUuid, PciAddress>,
) -> Result<Hardware, Error> {
    Ok(Hardware {
        cpus: cpu_ledger(config, addresses)?,
        devices: gpus.device_numbers(),
    })
}

/// The container engine of this host, looked for now and again and again until `stop`.
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

/// What the watch over health must know of the host.
fn place(
    data: &DataDirectory,
    host: &HostRegistration,
    clock: LeaseClock,
    config: &WorkerConfig,
) -> health::Place {
    health::Place {
        host: host.name.clone(),
        data: data.path().to_owned(),
        boot_id: host.boot_id.clone(),
        rebooted: data.rebooted(),
        clock,
        schedulers: config.schedulers.clone(),
        runs_containers: config.container_engine.runs_containers(),
    }
}

/// The GPUs as the watch over health needs them.
fn gpus_to_watch(
    monitor: &GpuMonitor,
    addresses: BTreeMap<GpuUuid, PciAddress>,
    sensors: Box<dyn GpuSensors>,
    uses: GpuUse,
) -> health::Gpus {
    health::Gpus {
        described: monitor.inventory().to_vec(),
        addresses,
        sensors,
        injector: monitor.injector(),
        is_simulated: monitor.is_simulated(),
        uses,
    }
}

/// The data directory, with a place for the tasks' directories.
fn take_data(config: &WorkerConfig, machine: &Machine) -> Result<DataDirectory, Error> {
    let data = DataDirectory::take(&config.data_dir, &machine.boot_id)?;
    let memory = run_directory(config, &data);
    task_place::settle(&data, &memory, config.run_dir.is_some())
        .map_err(system("making the directory of all tasks"))?;
    Ok(data)
}

/// Hands the output of tasks on until `stop`, if the settings say to whom.
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
    /// Begins with what recovery found: GPUs, checkpoints that were committed while no agent ran, and
    /// supervisors that must end.
    async fn recovered(
        &mut self,
        actions: Vec<muster_core::agent::Action>,
        late: Vec<Input>,
    ) -> Result<(), Error> {
        self.carry_out(actions).await?;
        for change in self.gpus.all() {
            self.gpu_shows(change).await?;
        }
        for input in late {
            self.step(input).await?;
        }
        Ok(())
    }
}

/// The agent as it was, with the supervisors that outlived it.
async fn recover(
    runner: &Runner,
    data: &DataDirectory,
    records: Vec<JournalRecord>,
) -> Result<(Agent, Vec<muster_core::agent::Action>, Vec<Input>), Error> {
    let adopted = runner.adopt().await.map_err(|source| Error::Adoption {
        path: data.tasks(),
        source,
    })?;
    tracing::info!(
        tasks = adopted.found.len(),
        records = records.len(),
        incarnation = data.incarnation(),
        "the agent has found what the last one left"
    );
    let mut found = adopted.found;
    if data.rebooted() {
        found.extend(lost_by_reboot(&records, &found));
    }
    let (agent, actions) = Agent::recover(records, found);
    let checkpoints = adopted.checkpoints.into_iter();
    let checkpoints =
        checkpoints.map(|(RunId { key, epoch }, report)| Input::Checkpoint { key, epoch, report });
    let spoiled = adopted.spoiled.into_iter();
    let spoiled =
        spoiled.map(|(RunId { key, epoch }, report)| Input::Spoiled { key, epoch, report });
    let progress = adopted.progress.into_iter();
    let progress =
        progress.map(|(RunId { key, epoch }, step)| Input::Progress { key, epoch, step });
    let late = checkpoints.chain(spoiled).chain(progress);
    Ok((agent, actions, late.collect()))
}

/// The attempts that the journal holds, of which nothing was found: the kernel's memory had it.
fn lost_by_reboot(records: &[JournalRecord], found: &[Found]) -> Vec<Found> {
    let mut held = BTreeMap::new();
    for record in records {
        match record {
            JournalRecord::Starting(assignment) => held.insert(assignment.key, assignment.epoch),
            JournalRecord::Released { key, .. } => held.remove(key),
            _ => None,
        };
    }
    let is_found =
        |run: &RunId| { found.iter() }.any(|it| (it.key, it.epoch) == (run.key, run.epoch));
    let lost = held.into_iter().map(|(key, epoch)| RunId { key, epoch });
    lost.filter(|run| !is_found(run))
        .map(runner::rebooted)
        .collect()
}

fn registration(
    config: &WorkerConfig,
    data: &DataDirectory,
    machine: Machine,
    (gpus, learnt): (&[GpuDescription], LearntTree),
) -> HostRegistration {
    let name = config.name.clone().unwrap_or(machine.name);
    HostRegistration {
        address: config.address.clone().unwrap_or_else(|| name.clone()),
        name,
        worker_id: data.worker_id(),
        incarnation: data.incarnation(),
        boot_id: machine.boot_id,
        gpus: gpus.to_vec(),
        cpus_milli: config.cpus_milli.unwrap_or(machine.cpus_milli),
        memory_mib: config.memory_mib.unwrap_or(machine.memory_mib),
        labels: labels(config),
        learnt,
    }
}

/// The settings' labels, and what this host says of itself.
fn labels(config: &WorkerConfig) -> BTreeMap<String, String> {
    let mut labels = config.labels.clone();
    if let Some(driver) = health::loaded_driver(&config.health.host_root) {
        labels.insert(DRIVER_LABEL.to_owned(), driver);
    }
    labels
}

fn engine_finder(config: &WorkerConfig, data: &DataDirectory) -> EngineFinder {
    let has_real_gpus = !matches!(config.gpus, GpuConfig::Simulated { .. });
    EngineFinder::new(
        (&config.container_engine, config.registry_auth_file.clone()),
        data.mark(),
        has_real_gpus,
        data.tasks(),
    )
}

fn runner_config(
    (config, data): (&WorkerConfig, &DataDirectory),
    hardware: Hardware,
    engine: watch::Receiver<Option<FoundEngine>>,
) -> Result<RunnerConfig, Error> {
    let supervisor = match &config.supervisor {
        Some(path) => path.clone(),
        None => supervisor_beside(std::env::current_exe().map_err(system("finding this program"))?),
    };
    let checkpoints = config
        .checkpoint_root
        .clone()
        .unwrap_or_else(|| data.path().join("checkpoints"));
    std::fs::create_dir_all(&checkpoints).map_err(system("creating the checkpoint root"))?;
    let checkpoints = absolute(checkpoints)?;
    Ok(RunnerConfig {
        supervisor,
        tasks: data.tasks(),
        logs: data.logs(),
        checkpoints_are_local: config.checkpoint_root.is_none(),
        checkpoint_scan_ms: config.checkpoint_scan_ms,
        log_limits: config.task_log_limits(),
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

/// A folder in memory that no other worker has.
fn run_directory(config: &WorkerConfig, data: &DataDirectory) -> PathBuf {
    let chosen = config.run_dir.clone();
    chosen.unwrap_or_else(|| PathBuf::from(MEMORY).join(format!("muster-{}", data.mark())))
}

/// Where attempts have shared memory of their own, if they are to have any and there is a place in memory for it.
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

/// The folder in memory in which attempts have shared memory of their own; none if tasks' directories lie on a disk.
fn shared_memory_folder(data: &DataDirectory) -> Option<PathBuf> {
    let tasks = task_place::in_memory(data)?;
    Some(tasks.with_file_name(task_place::shared_memory(data)))
}

/// Where cgroups of tasks can be made, if they are to have any.
fn cgroups(wanted: CgroupUse, data: &DataDirectory) -> Result<Option<CgroupHost>, Error> {
    if wanted == CgroupUse::Off {
        return Ok(None);
    }
    let host = CgroupHost::find(&data.mark());
    let has = |controller| host.as_ref().is_some_and(|host| host.has(controller));
    let missing: Vec<&str> = { LIMITING.into_iter() }
        .filter(|controller| !has(*controller))
        .map(Controller::word)
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
        "tasks of this host are not held to all that they were given"
    );
    Ok(host)
}

/// The CPUs that tasks can be bound to: those that this process may use itself.
fn cpu_ledger(
    config: &WorkerConfig,
    addresses: &BTreeMap<GpuUuid, PciAddress>,
) -> Result<CpuLedger, Error> {
    let ours = rustix::thread::sched_getaffinity(None)
        .map_err(|error| system("asking for the CPUs of this process")(error.into()))?;
    let allowed = |cpu| usize::try_from(cpu).is_ok_and(|cpu| ours.is_set(cpu));
    let sysfs = Sysfs::new(&config.topology.sysfs_root);
    let near =
        { addresses.iter() }.filter_map(|(gpu, address)| Some((*gpu, sysfs.node_of(*address)?)));
    let layout = CpuLayout::read(&config.topology.sysfs_root, allowed);
    Ok(CpuLedger::new(layout, near.collect()))
}

/// The small program that only supervises, if it was installed beside this one; else this one, which can do so too.
fn supervisor_beside(program: PathBuf) -> PathBuf {
    let small = program.with_file_name(SUPERVISOR_PROGRAM);
    if small.is_file() { small } else { program }
}

fn absolute(path: PathBuf) -> Result<PathBuf, Error> {
    path.canonicalize()
        .map_err(system("resolving the checkpoint root"))
}

async fn open_gpus(
    config: &GpuConfig,
    host: &str,
    watchdog: Option<&Watchdog>,
) -> Result<Box<dyn GpuBackend>, Error> {
    match config {
        // A driver that starts may take a minute: systemd must not take us for frozen.
        GpuConfig::Nvml | GpuConfig::Auto => match telling(watchdog, open_helped()).await {
            Ok(backend) => Ok(Box::new(backend)),
            Err(error @ GpuError::NoDriver(_)) if *config == GpuConfig::Auto => {
                tracing::info!(%error, "this host offers no GPUs");
                Ok(no_gpus(host))
            }
            Err(error @ GpuError::NoDriver(_)) => Err(error.into()),
            // The tasks of an earlier agent need this one more than a list of GPUs.
            Err(error) => {
                tracing::error!(%error, "the driver lists no GPUs: this host offers none");
                Ok(no_gpus(host))
            }
        },
        GpuConfig::Simulated {
            count,
            model,
            memory_mib,
            timeline,
            pci_addresses,
        } => {
            let timeline = match timeline {
                Some(path) => Timeline::read(path)?,
                None => Timeline::default(),
            };
            let backend = SimulatedBackend::new(host, *count, model, *memory_mib, timeline);
            Ok(Box::new(backend.with_pci_addresses(pci_addresses)?))
        }
        GpuConfig::None => Ok(no_gpus(host)),
    }
}

async fn open_helped() -> Result<HelpedBackend, GpuError> {
    let open = || HelpedBackend::open(HelperProgram::of_this_binary());
    let opened = tokio::task::spawn_blocking(open).await;
    opened.unwrap_or_else(|error| Err(GpuError::Told(format!("the opening failed: {error}"))))
}

fn no_gpus(host: &str) -> Box<dyn GpuBackend> {
    Box::new(SimulatedBackend::new(host, 0, "", 0, Timeline::default()))
}

fn system(operation: &'static str) -> impl FnOnce(std::io::Error) -> Error {
    move |source| Error::System { operation, source }
}
