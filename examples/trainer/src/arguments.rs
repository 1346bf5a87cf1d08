//! Command line and task environment.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

/// A data-parallel trainer with checkpoints; without a subcommand it trains.
#[derive(Debug, Parser)]
#[command(
    name = "muster-trainer",
    version,
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) train: TrainArguments,
}

/// Subcommands other than training.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Stand in for a job of a trace: run for a given time, then exit with a given code.
    Busy(BusyArguments),
}

/// Behaviour of the stand-in job.
#[derive(Debug, Args)]
pub(crate) struct BusyArguments {
    /// Run time in milliseconds
    #[arg(long)]
    pub(crate) milliseconds: u64,
    /// Exit code
    #[arg(long, default_value_t = 0)]
    pub(crate) exit_code: u8,
}

/// Training parameters, and the place of this rank in the gang.
#[derive(Debug, Clone, Args)]
pub(crate) struct TrainArguments {
    /// Number of this task in the gang
    #[arg(long, env = "RANK", default_value_t = 0)]
    pub(crate) rank: usize,
    /// Number of tasks in the gang
    #[arg(long, env = "WORLD_SIZE", default_value_t = 1)]
    pub(crate) world_size: usize,
    /// Host of rank 0, where the ranks meet
    #[arg(long, env = "MASTER_ADDR", default_value = "127.0.0.1")]
    pub(crate) master_addr: String,
    /// Port at which rank 0 accepts the others
    #[arg(long, env = "MASTER_PORT", default_value_t = 29_500)]
    pub(crate) master_port: u16,
    /// Job and epoch of this attempt: ranks of another attempt are rejected
    #[arg(
        long,
        env = "MUSTER_JOB_ID",
        default_value = "",
        hide_env_values = true
    )]
    pub(crate) job: String,
    /// Epoch of this attempt
    #[arg(long, env = "MUSTER_EPOCH", default_value = "")]
    pub(crate) epoch: String,

    /// Total number of steps, including those before a resume
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) steps: u64,
    /// Minimum duration of a step in milliseconds, to slow down a demonstration
    #[arg(long, default_value_t = 0)]
    pub(crate) step_ms: u64,
    /// Seed of the initial weights and of the data order
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Batch size over all ranks
    #[arg(long, default_value_t = 120)]
    pub(crate) batch: usize,
    /// Learning rate: how far a step follows the gradient
    #[arg(long, default_value_t = 0.2)]
    pub(crate) learning_rate: f32,

    /// Folder of this job's checkpoints; without it none are written
    #[arg(long, env = "MUSTER_CKPT_DIR", default_value = "")]
    checkpoint_dir: OsString,
    /// Checkpoint to resume from (a `step_N` folder); empty for none
    #[arg(long, env = "MUSTER_CKPT_LATEST", default_value = "")]
    resume_from: OsString,
    /// Checkpoint only at multiples of this many steps
    #[arg(long, default_value_t = 25, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) checkpoint_steps: u64,
    /// Minimum time between two checkpoints, in seconds
    #[arg(long, default_value_t = 0.0)]
    pub(crate) checkpoint_seconds: f64,
    /// Number of committed checkpoints to keep; older ones are removed once the agent has acknowledged a
    /// newer one
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) checkpoints_kept: u64,

    /// Socket of the worker agent that receives checkpoints and progress
    #[arg(long, env = "MUSTER_CTL_SOCK", default_value = "")]
    control_socket: OsString,
    /// Folder in which the agent creates the `preempt` flag
    #[arg(long, env = "MUSTER_CTL_DIR", default_value = "")]
    control_dir: OsString,

    /// Maximum wait of the ranks for each other at the start, in seconds
    #[arg(long, default_value_t = 60)]
    pub(crate) rendezvous_seconds: u64,
    /// Time in seconds after which a silent rank counts as dead
    #[arg(long, default_value_t = 20)]
    pub(crate) peer_timeout_seconds: u64,
    /// Ignore stop requests, both SIGTERM and the flag: like a program without support for them
    #[arg(long)]
    pub(crate) stubborn: bool,
    /// File for the result as JSON, written by rank 0 at the end
    #[arg(long)]
    pub(crate) report: Option<PathBuf>,
}

impl TrainArguments {
    /// Checks what clap cannot: dependencies between values.
    pub(crate) fn validate(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.world_size >= 1,
            "WORLD_SIZE is 0: at least one rank must train"
        );
        anyhow::ensure!(
            self.rank < self.world_size,
            "RANK {} is out of range: WORLD_SIZE is {}",
            self.rank,
            self.world_size
        );
        anyhow::ensure!(
            self.batch >= self.world_size,
            "--batch {} cannot be shared by {} ranks: each needs one sample",
            self.batch,
            self.world_size
        );
        anyhow::ensure!(
            self.checkpoint_seconds.is_finite() && self.checkpoint_seconds >= 0.0,
            "--checkpoint-seconds {} is not a duration",
            self.checkpoint_seconds
        );
        Ok(())
    }

    /// Identifier of this attempt; ranks with another one do not belong to this gang.
    pub(crate) fn attempt(&self) -> String {
        format!("{}/{}", self.job, self.epoch)
    }

    /// The checkpoint to resume from, if any.
    pub(crate) fn resume_from(&self) -> Option<&Path> {
        path(&self.resume_from)
    }

    /// The folder of this job's checkpoints, if any.
    pub(crate) fn checkpoint_dir(&self) -> Option<&Path> {
        path(&self.checkpoint_dir)
    }

    /// The agent's socket, if any.
    pub(crate) fn control_socket(&self) -> Option<&Path> {
        path(&self.control_socket)
    }

    /// The folder of the agent's flags, if any.
    pub(crate) fn control_dir(&self) -> Option<&Path> {
        path(&self.control_dir)
    }

    /// Time after which a silent rank counts as dead.
    pub(crate) fn peer_timeout(&self) -> Duration {
        Duration::from_secs(self.peer_timeout_seconds)
    }
}

/// An empty variable counts as unset.
fn path(text: &OsStr) -> Option<&Path> {
    (!text.is_empty()).then(|| Path::new(text))
}
