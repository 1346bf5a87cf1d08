//! What the agent finds on its host before anything runs: GPUs, CPUs, and what it registers as.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_core::command::{GpuDescription, HostRegistration};
use muster_core::ids::GpuUuid;
use muster_core::state::DRIVER_LABEL;
use muster_core::topology::LearntTree;

use super::system;
use crate::config::{GpuConfig, WorkerConfig};
use crate::cpus::{CpuLayout, CpuLedger};
use crate::error::Error;
use crate::gpu::{
    FaultMemory, GpuBackend, GpuError, GpuMemory, GpuMonitor, GpuSensors, HelpedBackend,
    HelperProgram, SimulatedBackend, Timeline,
};
use crate::health;
use crate::identity::{DataDirectory, Machine};
use crate::runner::Hardware;
use crate::topology::{self, PciAddress, Sysfs};
use crate::watchdog::{Watchdog, telling};

/// What the agent found on its host before anything runs.
pub(super) struct Ground {
    pub(super) name: String,
    pub(super) watchdog: Option<Watchdog>,
    pub(super) gpus: GpuMonitor,
    pub(super) addresses: BTreeMap<GpuUuid, PciAddress>,
    pub(super) memory: Arc<dyn GpuMemory>,
    pub(super) sensors: Box<dyn GpuSensors>,
    pub(super) hardware: Hardware,
    pub(super) host: HostRegistration,
}

impl Ground {
    pub(super) async fn prepare(
        config: &WorkerConfig,
        data: &DataDirectory,
        machine: Machine,
    ) -> Result<Self, Error> {
        let name = config.name.clone().unwrap_or_else(|| machine.name.clone());
        let watchdog = Watchdog::of_this_process();
        let gpus = open_gpus(&config.gpus, &name, watchdog.as_ref()).await?;
        let addresses = gpus.pci_addresses();
        let learnt = topology::learn(&config.topology, gpus.inventory(), &addresses);
        let hardware = hardware(config, &*gpus, &addresses)?;
        let (memory, sensors) = (gpus.memory(), gpus.sensors());
        let faults = FaultMemory::open(data.gpu_faults(), &machine.boot_id);
        let gpus = GpuMonitor::start(gpus, faults)?;
        let host = registration(config, data, machine, (gpus.inventory(), learnt));
        Ok(Self {
            name,
            watchdog,
            gpus,
            addresses,
            memory,
            sensors,
            hardware,
            host,
        })
    }
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
