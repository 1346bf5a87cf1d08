//! `muster demo`, `muster dev` and `muster chaos`: clusters made for the purpose.

use std::io::{self, Write};
use std::num::NonZero;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use muster_chaos::cluster::{ClusterOptions, real_gpus};
use muster_chaos::demo::{DemoError, DemoOptions};
use muster_chaos::dev::{self, DevCluster};
use muster_chaos::sim::sweep::{SweepOptions, sweep};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::service;

/// `muster demo`
///
/// Three replicas and four workers as processes on loopback; a real training beside a stream of jobs;
/// the leader, an agent, a host and a GPU die. Ends with a table, and with 0 only if every promise held.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// The example trainer; beside this program if none is given
    #[arg(long, env = "MUSTER_TRAINER_BIN", value_name = "FILE")]
    trainer: Option<PathBuf>,
    /// A Philly trace (CSV, may be gzipped) to replay; its published distribution if none is given
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Jobs of the stream beside the training
    #[arg(long, default_value_t = 150, value_name = "COUNT")]
    jobs: usize,
    /// Leave the cluster's folder (data and logs) behind
    #[arg(long)]
    keep: bool,
}

impl Demo {
    /// Does it.
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let binary = own_binary()?;
        let trainer = self
            .trainer
            .unwrap_or_else(|| binary.with_file_name("muster-trainer"));
        if !trainer.is_file() {
            return Err(Failure::usage(format!(
                "{} is not there; build it with `make build`, or name it with --trainer",
                trainer.display()
            )));
        }
        let options = DemoOptions {
            trace: self.trace,
            jobs: self.jobs,
            keep: self.keep,
            ..DemoOptions::new(binary, trainer)
        };
        let runtime = runtime()?;
        let played = runtime.block_on(async {
            tokio::select! {
                played = muster_chaos::demo::run(options) => played,
                _ = tokio::signal::ctrl_c() => {
                    Err(DemoError::Broken("interrupted".to_owned()))
                }
            }
        });
        match played {
            Ok(true) => Ok(Exit::Ok),
            Ok(false) => Ok(Exit::Error),
            Err(error) => Err(Failure::new(format!("the demo stopped: {error}"))),
        }
    }
}

/// `muster dev`
///
/// Leaves a cluster of separate processes on loopback running to play with, until Ctrl-C.
#[derive(Debug, Args)]
pub(crate) struct Dev {
    /// Scheduler replicas
    #[arg(long, default_value = "3", value_name = "COUNT")]
    replicas: NonZero<usize>,
    /// Workers, each a host of its own
    #[arg(long, default_value_t = 4, value_name = "COUNT")]
    workers: usize,
    /// Simulated GPUs of each host
    #[arg(long, default_value_t = 8, value_name = "COUNT")]
    gpus: u32,
    /// Write addresses, process ids and folders as JSON to this file once the cluster is ready
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Leave the cluster's folder (data and logs) behind
    #[arg(long)]
    keep: bool,
}

impl Dev {
    /// Does it.
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let options = ClusterOptions {
            replicas: self.replicas.get(),
            workers: self.workers,
            gpus_per_host: self.gpus,
            keep: self.keep,
            real_gpus: real_gpus() > 0,
            ..ClusterOptions::small(own_binary()?)
        };
        let ready_file = self.ready_file;
        service::run(|shutdown| {
            dev::run(options, shutdown.requested(), move |cluster| {
                announce(cluster, ready_file.as_deref())
            })
        })
    }
}

fn announce(cluster: &DevCluster, ready_file: Option<&std::path::Path>) -> io::Result<()> {
    if let Some(file) = ready_file {
        let unfinished = file.with_extension("tmp");
        std::fs::write(&unfinished, serde_json::to_vec_pretty(cluster)?)?;
        std::fs::rename(&unfinished, file)?;
    }
    let mut output = io::stdout().lock();
    writeln!(output, "export MUSTER_ADDR={}", cluster.addresses.join(","))?;
    writeln!(
        output,
        "# {} replicas, {} workers, logs in {}; Ctrl-C ends them",
        cluster.replicas.len(),
        cluster.workers.len(),
        cluster.folder.display()
    )?;
    for (process, metrics) in cluster.replicas.iter().zip(&cluster.metrics) {
        writeln!(output, "# {}: http://{metrics}/metrics", process.name)?;
    }
    output.flush()
}

/// `muster chaos`
#[derive(Debug, Subcommand)]
pub(crate) enum Chaos {
    /// Simulate whole clusters under faults, one per seed; the same seed gives the same cluster
    Sim(Sim),
}

/// `muster chaos sim`
#[derive(Debug, Args)]
pub(crate) struct Sim {
    /// First seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Number of seeds
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// Simulated seconds with faults in each cluster
    #[arg(long, default_value_t = 60, value_name = "SECONDS")]
    faults_seconds: u64,
    /// A line for every world, not only for those that fail
    #[arg(long)]
    all_lines: bool,
    /// Do not prove that the judges find the known bugs
    #[arg(long)]
    skip_mutants: bool,
}

impl Chaos {
    /// Does it.
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let Self::Sim(sim) = self;
        let options = SweepOptions {
            first: sim.first,
            seeds: sim.seeds,
            faults_s: sim.faults_seconds,
            all_lines: sim.all_lines,
            mutants: !sim.skip_mutants,
        };
        let mut output = io::stdout();
        let report = sweep(options, &mut output)
            .and_then(|report| write!(output, "{report}").map(|()| report))
            .map_err(|error| Failure::new(format!("cannot simulate: {error}")))?;
        Ok(if report.holds() {
            Exit::Ok
        } else {
            Exit::Error
        })
    }
}

fn own_binary() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::new(format!("cannot find this program's own file: {error}")))
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("cannot start the runtime: {error}")))
}
