//! Grammar of the command line.

use std::error::Error as _;
use std::num::{IntErrorKind, ParseIntError};
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser, Subcommand};

use crate::command;
use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::spans;

/// Error for a program given without `--`.
const AFTER_DASHES: &str = "the command to run comes after `--`";
/// Threads beside the one that runs the command: one may block on output for tasks while the other continues.
const RUNTIME_THREADS: usize = 2;
/// Longest wait after a command for background work: the removal of an incomplete file.
const BACKGROUND_WAIT_MAX: Duration = Duration::from_millis(500);

/// Muster: a scheduler for GPU clusters that survives the death of its leader
#[derive(Debug, Parser)]
#[command(name = "muster", version, long_about = None, max_term_width = 100)]
#[command(
    after_help = "Exit codes: 0 done, 1 error, 2 accepted but not placed in time, 3 the awaited \
job failed, 4 it was cancelled, 5 the replica was removed, 64 usage, 124 timed out"
)]
pub(crate) struct CommandLine {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    noun: Noun,
}

#[derive(Debug, Subcommand)]
enum Noun {
    /// Submit jobs, follow them, find out why they wait
    #[command(subcommand)]
    Job(command::job::Verb),
    /// Submit jobs that depend on each other as one object, follow it as a tree
    #[command(subcommand)]
    Pipeline(command::pipeline::Verb),
    /// Machines that run workers
    #[command(subcommand)]
    Host(command::host::Verb),
    /// Accelerators
    #[command(subcommand)]
    Gpu(command::gpu::Verb),
    /// Faults of GPUs and hosts, by which rule, and how they return to service
    #[command(subcommand)]
    Health(command::health::Verb),
    /// The queue tree with guarantees, limits and weights
    #[command(subcommand)]
    Queue(command::queue::Verb),
    /// The location of GPUs: racks, sockets and other cells
    #[command(subcommand)]
    Topology(command::topology::Verb),
    /// The scheduler replicas and the cluster as a whole
    #[command(subcommand)]
    Cluster(command::cluster::Verb),
    /// Records of changes: user, address, request and answer
    #[command(subcommand)]
    Audit(command::audit::Verb),
    /// Users with roles, and their tokens
    #[command(subcommand)]
    User(command::user::Verb),
    /// Create an authority and certificates for replicas, workers and users
    #[command(subcommand)]
    Cert(command::cert::Verb),
    /// Take hosts out of placement (as `host block`)
    BlockHost(command::host::Block),
    /// Return hosts to placement (as `host unblock`)
    UnblockHost(command::host::Unblock),
    /// Take GPUs out of placement (as `gpu block`)
    BlockGpu(command::gpu::Block),
    /// Return GPUs to placement (as `gpu unblock`)
    UnblockGpu(command::gpu::Unblock),
    /// Inspect the cluster's processes: log levels, and data for a bug report
    #[command(subcommand)]
    Debug(command::debug::Verb),
    /// Play a trace through the real planner in virtual time
    ///
    /// Every decision is the real planner's. Prints a table of delays, completion times, utilisation and
    /// fairness; with --report writes a page with charts, the figures as JSON and CSV, and a line for every
    /// job. Several policies in one call are compared. The files' columns are described in docs/simulate.md.
    ///
    /// With --from-cluster it forks the state of the running cluster instead and predicts the effect of a
    /// submission, a drain, a block or another queue tree: which jobs start when and where, which are
    /// stopped, which wait longer. The cluster is not touched (docs/what-if.md).
    #[cfg(feature = "server")]
    Simulate(Box<command::local::simulate::Simulate>),
    /// Run scripts against the scheduling engine, without a cluster
    #[cfg(feature = "server")]
    #[command(subcommand)]
    Scenario(command::local::scenario::Verb),
    #[cfg(feature = "server")]
    #[command(flatten)]
    Server(command::local::server::Noun),
    /// Create tokens with which workers join
    #[cfg(not(feature = "server"))]
    #[command(subcommand)]
    Worker(command::join_token::WorkerVerb),
    /// Print a completion script for a shell
    Completion(command::completion::Completion),
    /// Print the reference of all commands as Markdown
    #[command(hide = true)]
    CommandReference(command::command_reference::CommandReference),
}

/// Parses the command line. Prints help and errors.
pub(crate) fn parse() -> Result<CommandLine, Exit> {
    CommandLine::try_parse().map_err(|mut error| {
        if let Some(tip) = tip(&error) {
            // Similarly spelt subcommands would mislead beside this tip.
            error.remove(ContextKind::SuggestedSubcommand);
            let tip = ContextValue::StyledStrs(vec![tip.into()]);
            error.insert(ContextKind::Suggested, tip);
        }
        // If printing fails, only the exit code is left.
        drop(error.print());
        if error.use_stderr() {
            Exit::Usage
        } else {
            Exit::Ok
        }
    })
}

/// Suggestion of the right command if the parser's own message lacks one.
fn tip(error: &clap::Error) -> Option<String> {
    let source = error.source();
    if let Some(number) = source.and_then(|source| source.downcast_ref::<ParseIntError>()) {
        return Some(match number.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "it is too large".to_owned(),
            IntErrorKind::Zero => "write 1 or more".to_owned(),
            _ => "write a whole number".to_owned(),
        });
    }
    if let Some(ContextValue::String(verb)) = error.get(ContextKind::InvalidSubcommand) {
        return nouns_of(verb);
    }
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(argument))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    if argument.starts_with('-') {
        return None;
    }
    let usage = error.get(ContextKind::Usage)?.to_string();
    let extension = Path::new(argument).extension().unwrap_or_default();
    let submit = match extension == "yaml" || extension == "yml" || extension == "json" {
        true => ("`-f` reads jobs from a file", format!("-f {argument}")),
        false => (AFTER_DASHES, format!("-- {argument} ...")),
    };
    let tips = [
        ("job submit", submit.0, submit.1),
        ("job exec", AFTER_DASHES, format!("JOB -- {argument} ...")),
        (
            "cluster transfer-leader",
            "`--to` names the replica",
            format!("--to {argument}"),
        ),
    ];
    let mut tips = tips.into_iter();
    let (command, why, rest) =
        tips.find(|(command, ..)| usage.contains(&format!("muster {command}")))?;
    Some(format!("{why}: muster {command} {rest}"))
}

/// The nouns of a verb that was given without its noun, if there is such a verb.
fn nouns_of(verb: &str) -> Option<String> {
    let command = CommandLine::command();
    let nouns = command.get_subcommands();
    let nouns = nouns.filter(|noun| noun.find_subcommand(verb).is_some());
    let commands: Vec<String> = nouns
        .map(|noun| format!("muster {} {verb}", noun.get_name()))
        .collect();
    (!commands.is_empty()).then(|| format!("there is {}", commands.join(", ")))
}

impl CommandLine {
    /// Runs the command.
    pub(crate) fn run(self) -> Result<Exit, Failure> {
        let options = &self.options;
        match self.noun {
            Noun::Job(verb) => in_runtime(verb.run(options)),
            Noun::Pipeline(verb) => in_runtime(verb.run(options)),
            Noun::Host(verb) => in_runtime(verb.run(options)),
            Noun::Gpu(verb) => in_runtime(verb.run(options)),
            Noun::Queue(verb) => in_runtime(verb.run(options)),
            Noun::Topology(verb) => in_runtime(verb.run(options)),
            Noun::Health(verb) => in_runtime(verb.run(options)),
            Noun::Cluster(verb) => in_runtime(verb.run(options)),
            Noun::Audit(verb) => in_runtime(verb.run(options)),
            Noun::Debug(verb) => in_runtime(verb.run(options)),
            Noun::User(verb) => in_runtime(verb.run(options)),
            Noun::Cert(verb) => verb.run(options),
            Noun::BlockHost(block) => in_runtime(block.run(options)),
            Noun::UnblockHost(unblock) => in_runtime(unblock.run(options)),
            Noun::BlockGpu(block) => in_runtime(block.run(options)),
            Noun::UnblockGpu(unblock) => in_runtime(unblock.run(options)),
            #[cfg(feature = "server")]
            Noun::Simulate(simulate) => simulate.run(options),
            #[cfg(feature = "server")]
            Noun::Scenario(verb) => verb.run(options),
            #[cfg(feature = "server")]
            Noun::Server(noun) => noun.run(options),
            #[cfg(not(feature = "server"))]
            Noun::Worker(verb) => in_runtime(verb.run(options)),
            Noun::Completion(completion) => completion.run(options),
            Noun::CommandReference(reference) => reference.run(options),
        }
    }
}

/// Runs a command that contacts a cluster.
pub(crate) fn in_runtime<'a>(
    command: impl Future<Output = Result<Exit, Failure>> + 'a,
) -> Result<Exit, Failure> {
    // Boxed, since the runtime is compiled again for every type of future.
    run_boxed(Box::pin(command))
}

fn run_boxed(
    command: Pin<Box<dyn Future<Output = Result<Exit, Failure>> + '_>>,
) -> Result<Exit, Failure> {
    // Standard output may block its writer while connections need attention: so not on the thread that
    // writes.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(RUNTIME_THREADS)
        .enable_all()
        .build()
        .map_err(|error| Failure::new(format!("cannot start the runtime: {error}")))?;
    let ended = runtime.block_on(async {
        spans::export_by_variable()?;
        let ended = command.await;
        spans::finish().await;
        ended
    });
    // Without a limit, an unresponsive name server would keep the process beyond its deadline.
    runtime.shutdown_timeout(BACKGROUND_WAIT_MAX);
    ended
}
