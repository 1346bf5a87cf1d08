//! Commands for machines that run the cluster: replicas, workers, their tasks and tests. Not in the client
//! build.

use clap::Subcommand;

use crate::arguments::in_runtime;
use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum Noun {
    /// Save the cluster's state to a file, check it, restore it into a new cluster
    #[command(subcommand)]
    Snapshot(super::snapshot::Verb),
    /// From inside a task: register checkpoints, wait for a stop request
    #[command(subcommand)]
    Task(super::task::Verb),
    /// Run a scheduler replica
    Scheduler(super::scheduler::Scheduler),
    /// Run a worker's agent, or create tokens with which workers join
    Worker(super::worker::Worker),
    /// Check settings files of schedulers and workers, print their defaults
    #[command(subcommand)]
    Config(super::config::Verb),
    /// Watch a cluster train a model while its parts are killed
    Demo(super::demo::Demo),
    /// Submit the jobs of a trace, faster than in the trace
    Replay(super::replay::Replay),
    /// Run a small cluster on this machine for experiments
    Dev(super::demo::Dev),
    /// Test fault tolerance: simulated and real clusters, under faults
    #[command(subcommand)]
    Chaos(super::chaos::Chaos),
}

impl Noun {
    /// Runs the command.
    pub(crate) fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::Snapshot(verb) => in_runtime(verb.run(options)),
            Self::Task(verb) => verb.run(options),
            Self::Scheduler(scheduler) => scheduler.run(),
            Self::Worker(worker) if worker.is_service() => worker.serve(),
            Self::Worker(worker) => in_runtime(worker.run(options)),
            Self::Config(verb) => verb.run(options),
            Self::Demo(demo) => demo.run(),
            Self::Replay(replay) => in_runtime(replay.run(options)),
            Self::Dev(dev) => dev.run(),
            Self::Chaos(chaos) => chaos.run(options),
        }
    }
}
