//! Resources of the host before anything runs: GPUs, CPUs, and the registration.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::command::{GpuDescription, HostRegistration};
use muster_model::host::DRIVER_LABEL;
use muster_model::ids::GpuUuid;
use muster_model::topology::ReportedTopology;
use muster_monitor::gpu::{FaultStore, GpuBackend, GpuMemory, GpuMonitor, GpuSensors, open_gpus};
use muster_monitor::health;
use muster_monitor::topology::{self, PciAddress, Sysfs};
use muster_service::systemd::Systemd;

use crate::config::WorkerConfig;
use crate::error::Error;
use crate::identity::{DataDirectory, Machine};
use crate::run::startup_progress::with_progress;
use crate::run::system;
use crate::tasks::cpus::{CpuLayout, CpuLedger};
use crate::tasks::runner::Hardware;

/// Resources of the host before anything runs.
pub(super) struct HostResources {
    pub(super) name: String,
    pub(super) systemd: Option<Systemd>,
    pub(super) gpus: GpuMonitor,
    /// Why no GPUs are offered although the host should have some.
    pub(super) unopened: Option<String>,
    pub(super) addresses: BTreeMap<GpuUuid, PciAddress>,
    pub(super) memory: Arc<dyn GpuMemory>,
    pub(super) sensors: Box<dyn GpuSensors>,
    pub(super) hardware: Hardware,
    pub(super) host: HostRegistration,
}

impl HostResources {
    pub(super) async fn prepare(
        config: &WorkerConfig,
        data: &DataDirectory,
        machine: Machine,
    ) -> Result<Self, Error> {
        let name = config.name.clone().unwrap_or_else(|| machine.name.clone());
        let systemd = Systemd::of_this_process();
        let host_root = config.health.host();
        let opening = open_gpus(&config.gpus, &name, host_root);
        // A driver may take a minute to start: systemd must not take the agent for hung.
        let opened = with_progress(systemd.as_ref(), opening).await?;
        let (gpus, unopened) = (opened.backend, opened.unopened);
        let addresses = gpus.pci_addresses();
        let reported = topology::learn(&config.topology, gpus.inventory(), &addresses);
        let hardware = hardware(config, &*gpus, &addresses)?;
        let (memory, sensors) = (gpus.memory(), gpus.sensors());
        let faults = FaultStore::open(data.gpu_faults(), &machine.boot_id);
        let gpus = GpuMonitor::start(gpus, faults)?;
        let host = registration(config, data, machine, gpus.inventory(), reported);
        Ok(Self {
            name,
            systemd,
            gpus,
            unopened,
            addresses,
            memory,
            sensors,
            hardware,
            host,
        })
    }
}

/// CPUs and devices that are restricted for tasks.
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
    gpus: &[GpuDescription],
    reported: ReportedTopology,
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
        reported,
    }
}

/// The labels of the settings and those of the worker.
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
        .map_err(|error| system("reading the CPUs of this process")(error.into()))?;
    let allowed = |cpu| usize::try_from(cpu).is_ok_and(|cpu| ours.is_set(cpu));
    let sysfs = Sysfs::new(&config.topology.sysfs_root);
    let near = addresses
        .iter()
        .filter_map(|(gpu, address)| Some((*gpu, sysfs.node_of(*address)?)));
    let layout = CpuLayout::read(&config.topology.sysfs_root, allowed);
    Ok(CpuLedger::new(layout, near.collect()))
}
