//! Command line, and the part of it that every figure gets.

use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use clap::{Parser, ValueEnum};

/// Measures Muster on this machine. Build the `muster` program first (`make bench` does).
#[derive(Debug, Parser)]
#[command(name = "muster-bench", version, max_term_width = 100)]
pub(crate) struct Options {
    /// What to measure; everything if nothing is named
    #[arg(value_enum, value_name = "FIGURE")]
    figures: Vec<Figure>,
    /// Few and short runs: shows that the program works; the numbers are not meaningful
    #[arg(long)]
    pub(crate) quick: bool,
    /// Writes the rows as JSON too
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Writes the table as Markdown too
    #[arg(long, value_name = "FILE")]
    pub(crate) markdown: Option<PathBuf>,
    /// The `muster` program; by default the one beside this program
    #[arg(long, env = "MUSTER_BIN", value_name = "FILE")]
    binary: Option<PathBuf>,
    /// The etcd to compare with (Debian: etcd-server)
    #[arg(long, default_value = "/usr/bin/etcd", value_name = "FILE")]
    etcd: PathBuf,
}

/// What can be measured, in order of importance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Figure {
    /// Durable submits per second beside etcd's puts
    Submit,
    /// Submits per second with TLS and a token, beside those without
    Secure,
    /// Placements per second on 5,000 simulated hosts
    Place,
    /// Death of the leader to the next acknowledged write
    Failover,
    /// Acknowledged submits that are missing after kills
    Lost,
    /// Acknowledgement to the first instruction of a task; a gang of 64 GPUs
    Start,
    /// One submit by the command line program
    Cli,
    /// Cost of the heartbeats of 10,000 workers for the leader
    Heartbeats,
    /// Time until a silent host is suspect and lost, with and without the leader's death, at three sizes
    Detection,
    /// A worker's finding to its committed block, among 10,000 workers
    Report,
    /// Memory and restart of a replica with 100,000 jobs
    Memory,
    /// Decisions of the scheduling engine alone, up to 65,536 GPUs
    Engine,
    /// Stall of the apply loop while a snapshot is written
    Snapshot,
}

impl fmt::Display for Figure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        formatter.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

impl Options {
    /// What to measure.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        if self.figures.is_empty() {
            return Figure::value_variants().to_vec();
        }
        self.figures.clone()
    }
}

/// Settings of every figure.
#[derive(Clone, Debug)]
pub(crate) struct Bench {
    /// The `muster` program.
    pub(crate) binary: PathBuf,
    /// The etcd program, which may be missing.
    pub(crate) etcd: PathBuf,
    quick: bool,
}

impl Bench {
    /// # Errors
    /// If the `muster` program is not there.
    pub(crate) fn new(options: &Options) -> anyhow::Result<Self> {
        let binary = match &options.binary {
            Some(binary) => binary.clone(),
            None => std::env::current_exe()
                .context("finding this program")?
                .with_file_name("muster"),
        };
        ensure!(
            binary.is_file(),
            "{} is missing: build it first (`make build`) or name it with --binary",
            binary.display()
        );
        Ok(Self {
            binary,
            etcd: options.etcd.clone(),
            quick: options.quick,
        })
    }

    /// Returns the first value for a full run, the second with `--quick`.
    pub(crate) fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Prints progress.
    pub(crate) fn progress(&self, line: &str) {
        // A failure to print progress must not end a measurement.
        drop(writeln!(std::io::stderr(), "{line}"));
    }
}
