//! `muster worker`.

use std::path::PathBuf;

use clap::Args;
use muster_core::topology::NamedCell;
use muster_worker::topology::DeclaredCells;
use muster_worker::{ContainerEngineConfig, GpuConfig, WorkerConfig};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::logging::{self, LogFormat};
use crate::parse::{self, HumanSize};
use crate::service;

/// Memory of a simulated GPU in MiB, where `--simulated-gpus` makes one: that of an H100.
const SIMULATED_GPU_MEMORY_MIB: u64 = 81_920;
/// Model of a simulated GPU, where none is named.
const SIMULATED_GPU_MODEL: &str = "SIM-H100";

/// `muster worker`
///
/// Runs until it is told to stop: the first SIGTERM or SIGINT stops the agent gracefully, the second
/// one at once. Tasks go on in both cases, and the next agent adopts them.
#[derive(Debug, Args)]
pub(crate) struct Worker {
    /// Settings in YAML (or JSON); flags overrule them
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Host name, unique in the cluster; the machine's own if none is given
    #[arg(long)]
    name: Option<String>,
    /// Where tasks of other hosts reach this one
    #[arg(long, value_name = "HOST")]
    task_address: Option<String>,
    /// Scheduler replicas as host:port, comma separated
    #[arg(long, value_name = "ADDRESSES", value_delimiter = ',')]
    schedulers: Vec<String>,
    /// Holds identity, journal, running tasks and logs; on a local disk
    #[arg(long, value_name = "FOLDER")]
    data_dir: Option<PathBuf>,
    /// Holds the checkpoints of all jobs, at the same path on every host
    #[arg(long, value_name = "FOLDER")]
    checkpoint_root: Option<PathBuf>,
    /// Offer so many simulated GPUs instead of real ones
    #[arg(long, value_name = "COUNT")]
    simulated_gpus: Option<u32>,
    /// Model of the simulated GPUs
    #[arg(long, value_name = "MODEL", requires = "simulated_gpus")]
    simulated_gpu_model: Option<String>,
    /// Memory to offer; all of the machine if none is given
    #[arg(long, value_name = "SIZE", value_parser = parse::size)]
    memory: Option<HumanSize>,
    /// CPUs to offer; all of the machine if none is given
    #[arg(long, value_name = "COUNT", value_parser = parse::cpu_count)]
    cpus: Option<parse::CpuCount>,
    /// A label: NAME=VALUE
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse::assignment)]
    label: Vec<(String, String)>,
    /// A cell that this host lies in: LEVEL=NAME, larger ones first (pod=pod-1 rack=rack-07)
    #[arg(long, value_name = "LEVEL=NAME", value_parser = parse::assignment)]
    cell: Vec<(String, String)>,
    /// Cells of so many GPUs each that simulated GPUs form: LEVEL=GPUS, larger ones first (socket=4 switch=2)
    #[arg(long, value_name = "LEVEL=GPUS", value_parser = parse::assignment, requires = "simulated_gpus")]
    simulated_cells: Vec<(String, String)>,
    /// What makes containers: `auto`, `none` or an engine's socket
    #[arg(long, value_name = "SOCKET")]
    container_engine: Option<String>,
    /// Form of log lines; MUSTER_LOG says what is logged
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    log: LogFormat,
}

impl Worker {
    /// Does it.
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        logging::start(self.log)?;
        let config = self.settings()?;
        service::run(|shutdown| muster_worker::run(config, shutdown.requested()))
    }

    fn settings(self) -> Result<WorkerConfig, Failure> {
        let mut config: WorkerConfig = service::read_settings(self.config.as_deref())?;
        config.name = self.name.or(config.name);
        config.address = self.task_address.or(config.address);
        config.checkpoint_root = self.checkpoint_root.or(config.checkpoint_root);
        config.memory_mib = self.memory.map(|memory| memory.mib).or(config.memory_mib);
        config.cpus_milli = self.cpus.map(|cpus| cpus.milli).or(config.cpus_milli);
        config.labels.extend(self.label);
        if let Some(word) = &self.container_engine {
            config.container_engine = ContainerEngineConfig::of(word);
        }
        if !self.schedulers.is_empty() {
            config.schedulers = self.schedulers;
        }
        if let Some(folder) = self.data_dir {
            config.data_dir = folder;
        }
        if let Some(count) = self.simulated_gpus {
            let model = self.simulated_gpu_model;
            config.gpus = GpuConfig::Simulated {
                count,
                model: model.unwrap_or_else(|| SIMULATED_GPU_MODEL.to_owned()),
                memory_mib: SIMULATED_GPU_MEMORY_MIB,
                timeline: None,
                pci_addresses: Vec::new(),
            };
        }
        add_cells(&mut config, self.cell, &self.simulated_cells)?;
        config
            .validate()
            .map_err(|error| Failure::usage(error.to_string()))?;
        Ok(config)
    }
}

/// Adds what flags say of the host's place to the settings.
fn add_cells(
    config: &mut WorkerConfig,
    around: Vec<(String, String)>,
    simulated: &[(String, String)],
) -> Result<(), Failure> {
    if !around.is_empty() {
        let cells = around.into_iter();
        config.topology.above = cells
            .map(|(level, name)| NamedCell { level, name })
            .collect();
    }
    let GpuConfig::Simulated { count, .. } = &config.gpus else {
        return Ok(());
    };
    for (level, size) in simulated {
        let each: u32 = size.parse().map_err(|_| {
            let told = format!("--simulated-cells {level}={size}");
            Failure::usage(format!("{told}: `{size}` is no number of GPUs"))
        })?;
        let cells = DeclaredCells::of_size(level, *count, each);
        config.topology.inside.push(cells);
    }
    Ok(())
}
