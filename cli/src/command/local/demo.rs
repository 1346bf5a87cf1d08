//! `muster demo` and `muster dev`: temporary clusters on this machine.

use std::io::{self, Write};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, value_parser};
use muster_chaos::cluster::{ClusterOptions, real_gpus};
use muster_chaos::demo::{DemoError, DemoOptions};
use muster_chaos::dev::{self, DevCluster};
use muster_model::limits::GPUS_PER_HOST_MAX;

use crate::connection::current_user;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::counted;
use crate::service;

/// Maximum number of GPUs of a host ([`GPUS_PER_HOST_MAX`]), as the limit of a flag.
const GPUS_MAX: i64 = GPUS_PER_HOST_MAX as i64;

/// `muster demo`
///
/// Three replicas and four workers as processes on loopback; a real training beside a stream of jobs;
/// the leader, an agent, a host and a GPU die. Ends with a table, and with 0 only if every promise held.
#[derive(Debug, Args)]
pub(crate) struct Demo {
    /// The example trainer; by default the one beside this program
    #[arg(long, env = "MUSTER_TRAINER_BIN", value_name = "FILE")]
    trainer: Option<PathBuf>,
    /// A Philly trace (CSV, may be gzipped) to replay; by default its published distribution
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Jobs of the stream beside the training
    #[arg(long, default_value_t = 150, value_name = "COUNT")]
    jobs: usize,
    /// Keep the cluster's data and logs
    #[arg(long)]
    keep: bool,
}

impl Demo {
    /// Runs the command.
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let binary = own_binary()?;
        let trainer = trainer_program(self.trainer, &binary)?;
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
/// Starts a cluster of separate processes on loopback for experiments, and runs it until Ctrl-C.
#[derive(Debug, Args)]
pub(crate) struct Dev {
    /// Scheduler replicas
    #[arg(long, default_value = "3", value_name = "COUNT")]
    replicas: NonZero<usize>,
    /// Workers, each a host of its own
    #[arg(long, default_value_t = 4, value_name = "COUNT")]
    workers: usize,
    /// Simulated GPUs of each host
    #[arg(long, default_value_t = 8, value_name = "COUNT", value_parser = value_parser!(u32).range(..=GPUS_MAX))]
    gpus: u32,
    /// Write addresses, process ids and folders as JSON to this file once the cluster is ready
    #[arg(long, value_name = "FILE")]
    ready_file: Option<PathBuf>,
    /// Keep the cluster's data and logs
    #[arg(long)]
    keep: bool,
}

impl Dev {
    /// Runs the command.
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let mut shape = ClusterOptions::small(own_binary()?);
        // The caller owns the cluster and is its admin.
        shape.admins.insert(current_user());
        let options = ClusterOptions {
            replicas: self.replicas.get(),
            workers: self.workers,
            gpus_per_host: self.gpus,
            keep: self.keep,
            real_gpus: real_gpus() > 0,
            ..shape
        };
        let ready_file = self.ready_file;
        service::run(Duration::ZERO, |shutdown| {
            dev::run(options, shutdown.requested(), move |cluster| {
                announce(cluster, ready_file.as_deref())
            })
        })
    }
}

fn announce(cluster: &DevCluster, ready_file: Option<&Path>) -> io::Result<()> {
    if let Some(file) = ready_file {
        let unfinished = file.with_extension("tmp");
        std::fs::write(&unfinished, serde_json::to_vec_pretty(cluster)?)?;
        std::fs::rename(&unfinished, file)?;
    }
    let mut output = io::stdout().lock();
    writeln!(output, "export MUSTER_ADDR={}", cluster.addresses.join(","))?;
    writeln!(
        output,
        "# {}, {}, logs in {}; Ctrl-C ends them",
        counted(cluster.replicas.len() as u64, "replica"),
        counted(cluster.workers.len() as u64, "worker"),
        cluster.folder.display()
    )?;
    for (process, metrics) in cluster.replicas.iter().zip(&cluster.metrics) {
        writeln!(output, "# {}: http://{metrics}/metrics", process.name)?;
    }
    output.flush()
}

/// Path of this program: replicas and workers of a cluster are started from it.
pub(in crate::command) fn own_binary() -> Result<PathBuf, Failure> {
    std::env::current_exe()
        .map_err(|error| Failure::new(format!("cannot find the path of this program: {error}")))
}

/// The example trainer: the given one, or the one beside this program.
pub(in crate::command) fn trainer_program(
    named: Option<PathBuf>,
    binary: &Path,
) -> Result<PathBuf, Failure> {
    let trainer = named.unwrap_or_else(|| binary.with_file_name("muster-trainer"));
    if !trainer.is_file() {
        return Err(Failure::usage(format!(
            "{} does not exist; build it with `make build`, or give its path with --trainer",
            trainer.display()
        )));
    }
    Ok(trainer)
}

/// Runtime of a cluster's driver.
pub(in crate::command) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("cannot start the runtime: {error}")))
}
