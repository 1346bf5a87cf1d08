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
    Snapshot(crate::command::local::snapshot::Verb),
    /// From inside a task: register checkpoints, wait for a stop request
    #[command(subcommand)]
    Task(crate::command::local::task::Verb),
    /// Run a scheduler replica
    Scheduler(crate::command::local::scheduler::Scheduler),
    /// Run a worker's agent, or create tokens with which workers join
    Worker(crate::command::worker::Worker),
    /// Check settings files of schedulers and workers, print their defaults
    #[command(subcommand)]
    Config(crate::command::local::config::Verb),
    /// Watch a cluster train a model while its parts are killed
    Demo(crate::command::local::demo::Demo),
    /// Submit the jobs of a trace, faster than in the trace
    Replay(crate::command::local::replay::Replay),
    /// Run a small cluster on this machine for experiments
    Dev(crate::command::local::demo::Dev),
    /// Test fault tolerance: simulated and real clusters, under faults
    #[command(subcommand)]
    Chaos(crate::command::local::chaos::Chaos),
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
