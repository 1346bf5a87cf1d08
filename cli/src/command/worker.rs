//! `muster worker`.

use std::time::Duration;

use clap::Args;
use muster_service::settings::{OptionValue, Origin};
use muster_worker::WorkerConfig;
use muster_worker::monitor::topology::DeclaredCells;
use serde_json::{Value, json};

use crate::command::join_token;
use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::parse::{self, HumanSize};
use crate::service;
use crate::settings::SettingsArguments;

/// Memory of a simulated GPU in MiB by default: that of an H100.
const SIMULATED_GPU_MEMORY_MIB: u64 = 81_920;
/// Model of a simulated GPU by default.
const SIMULATED_GPU_MODEL: &str = "SIM-H100";

/// `muster worker`
///
/// Runs until it is stopped: the first SIGTERM or SIGINT stops the agent gracefully, the second one at once.
/// Tasks continue in both cases, and the next agent adopts them. SIGHUP reloads the settings.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Worker {
    #[command(subcommand)]
    verb: Option<join_token::WorkerVerb>,
    #[command(flatten)]
    settings: SettingsArguments<WorkerConfig>,
    #[command(flatten)]
    shortcuts: Shortcuts,
}

/// Short flags for longer values of options.
#[derive(Debug, Args)]
struct Shortcuts {
    /// Offer this many simulated GPUs instead of real ones (`gpus`)
    #[arg(long, value_name = "COUNT")]
    simulated_gpus: Option<u32>,
    /// Model of the simulated GPUs
    #[arg(long, value_name = "MODEL", requires = "simulated_gpus")]
    simulated_gpu_model: Option<String>,
    /// Memory to offer (`memory_mib`); by default all of the machine
    #[arg(long, value_name = "SIZE", value_parser = parse::size)]
    memory: Option<HumanSize>,
    /// CPUs to offer (`cpus_milli`); by default all of the machine
    #[arg(long, value_name = "COUNT", value_parser = parse::cpu_count)]
    cpus: Option<parse::CpuCount>,
    /// A cell that contains this host (`topology.above`): LEVEL=NAME, larger ones first (pod=pod-1
    /// rack=rack-07)
    #[arg(long, value_name = "LEVEL=NAME", value_parser = parse::assignment)]
    cell: Vec<(String, String)>,
    /// Cells of this many simulated GPUs each (`topology.inside`): LEVEL=GPUS, larger ones first (socket=4
    /// switch=2)
    #[arg(long, value_name = "LEVEL=GPUS", value_parser = parse::assignment, requires = "simulated_gpus")]
    simulated_cells: Vec<(String, String)>,
}

impl Worker {
    /// Whether it runs as a service, with its own runtime.
    pub(crate) const fn is_service(&self) -> bool {
        self.verb.is_none()
    }

    /// Runs the command.
    pub(crate) async fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self.verb {
            Some(verb) => verb.run(options).await,
            None => self.serve(),
        }
    }

    /// Runs a worker.
    pub(crate) fn serve(self) -> Result<Exit, Failure> {
        let source = self.settings.source()?.with(self.shortcuts.given()?);
        // No wait: threads that wait for a task's supervisor end only with the task.
        service::run_with_settings(Duration::ZERO, source, |settings, shutdown| {
            muster_worker::run_reloading(settings, shutdown.requested())
        })
    }
}

impl Shortcuts {
    fn given(self) -> Result<Vec<OptionValue>, Failure> {
        let given = |key: &str, flag: &str, value| OptionValue {
            key: key.to_owned(),
            value,
            origin: Origin::Flag(flag.to_owned()),
        };
        let mut all = Vec::new();
        if let Some(memory) = self.memory {
            all.push(given("memory_mib", "--memory", json!(memory.mib)));
        }
        if let Some(cpus) = self.cpus {
            all.push(given("cpus_milli", "--cpus", json!(cpus.milli)));
        }
        if !self.cell.is_empty() {
            let cells = self
                .cell
                .iter()
                .map(|(level, name)| json!({"level": level, "name": name}));
            all.push(given("topology.above", "--cell", cells.collect()));
        }
        let Some(count) = self.simulated_gpus else {
            return Ok(all);
        };
        let simulated = json!({
            "count": count,
            "model": self.simulated_gpu_model.as_deref().unwrap_or(SIMULATED_GPU_MODEL),
            "memory_mib": SIMULATED_GPU_MEMORY_MIB,
            "timeline": null,
        });
        all.push(given(
            "gpus",
            "--simulated-gpus",
            json!({"simulated": simulated}),
        ));
        if !self.simulated_cells.is_empty() {
            let cells = self
                .simulated_cells
                .iter()
                .map(|(level, size)| simulated_cells(count, level, size));
            let cells = cells.collect::<Result<Value, Failure>>()?;
            all.push(given("topology.inside", "--simulated-cells", cells));
        }
        Ok(all)
    }
}

fn simulated_cells(gpus: u32, level: &str, size: &str) -> Result<Value, Failure> {
    let each: u32 = size.parse().map_err(|_| {
        let flag = format!("--simulated-cells {level}={size}");
        Failure::usage(format!("{flag}: invalid number of GPUs `{size}`"))
    })?;
    Ok(json!(DeclaredCells::of_size(level, gpus, each)))
}
