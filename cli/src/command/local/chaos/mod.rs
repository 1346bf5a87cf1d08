//! `muster chaos`: fault injection tests of the product.

mod replay;
mod run;
mod shrink;
mod sim;
mod target;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use muster_chaos::cluster::{Fault, NetworkKind};
use muster_chaos::trials::{Trial, TrialsOptions, TrialsReport, isolation};
use tokio::signal::unix::{SignalKind, signal};

use crate::command::inject::Inject;
use crate::command::local::demo::{own_binary, runtime, trainer_program};
use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::output::{Format, Screen, render_document};

/// Longest wait for a cluster to stop.
const STOP_MAX: Duration = Duration::from_secs(30);

/// `muster chaos`
#[derive(Debug, Subcommand)]
pub(crate) enum Chaos {
    /// Simulate whole clusters under faults, one per seed; the same seed gives the same cluster
    Sim(sim::Sim),
    /// Minimize a failure of a simulated cluster: leave out faults as long as it still fails
    Shrink(shrink::Shrink),
    /// Run a simulated cluster again and step through its events
    Replay(replay::Replay),
    /// Break a real cluster under load, fault after fault, and check all observations
    Run(run::Run),
    /// Break a real cluster during a training, one fault at a time, and measure the cost
    Tasks(Tasks),
    /// Inject a fault on a host with simulated GPUs of a running cluster
    Inject(Inject),
}

/// `muster chaos tasks`
///
/// Three replicas and three workers as processes, each in its own network namespace; a training of four
/// ranks. Each trial injects one fault, a while after a checkpoint. Ends with a table, and with 0 only if
/// every promise held. Needs `unshare`, `nsenter`, `mount` and `ip`, and the right to create namespaces.
#[derive(Debug, Args)]
pub(crate) struct Tasks {
    /// Only this trial; repeatable
    #[arg(long, value_name = "NAME", value_parser = trial_parser())]
    trial: Vec<Trial>,
    /// The program that workers start with in trial `agent-upgraded`, which replaces an agent by this one; by
    /// default a copy of this one
    #[arg(long, value_name = "FILE")]
    previous: Option<PathBuf>,
    #[command(flatten)]
    namespace_options: NamespaceOptions,
}

/// Options shared by commands that start clusters in their own namespaces.
#[derive(Debug, Args)]
struct NamespaceOptions {
    /// The example trainer; by default the one beside this program
    #[arg(long, env = "MUSTER_TRAINER_BIN", value_name = "FILE")]
    trainer: Option<PathBuf>,
    /// Keep the clusters' data and logs
    #[arg(long)]
    keep: bool,
    /// Set by the program itself when it runs under its own guard
    #[arg(long, hide = true)]
    inside: bool,
}

fn trial_parser() -> impl TypedValueParser<Value = Trial> {
    let names = PossibleValuesParser::new(Trial::ALL.map(|trial| trial.fault.name()));
    names.try_map(|name| Trial::named(&name).ok_or("unknown trial"))
}

impl Chaos {
    /// Runs the command.
    pub(crate) fn run(self, options: &Options) -> Result<Exit, Failure> {
        match self {
            Self::Sim(sim) => sim.run(options),
            Self::Shrink(shrink) => shrink.run(options),
            Self::Replay(replay) => replay.run(options),
            Self::Run(run) => run.run(options),
            Self::Tasks(tasks) => tasks.run(options),
            Self::Inject(inject) => runtime()?.block_on(inject.run(options)),
        }
    }
}

impl Tasks {
    fn run(self, options: &Options) -> Result<Exit, Failure> {
        let trials = if self.trial.is_empty() {
            Trial::ALL.to_vec()
        } else {
            self.trial
        };
        let upgrades = trials.iter().any(|it| it.fault == Fault::AgentUpgraded);
        if self.previous.is_some() && !upgrades {
            let name = Fault::AgentUpgraded.name();
            return Err(Failure::usage(format!("--previous is for trial {name}")));
        }
        let binary = own_binary()?;
        let trainer = trainer_program(self.namespace_options.trainer, &binary)?;
        let runtime = runtime()?;
        if !self.namespace_options.inside {
            return runtime.block_on(guard(&binary, NetworkKind::Namespaces, &[]));
        }
        let trials_options = TrialsOptions {
            binary,
            previous: self.previous,
            trainer,
            trials,
            keep: self.namespace_options.keep,
        };
        let played = runtime.block_on(play(
            "the trials",
            muster_chaos::trials::run(&trials_options),
        ));
        // A cluster that is stopping is waited for.
        runtime.shutdown_timeout(STOP_MAX);
        print_report(&options.screen(), &played?)
    }
}

/// Restarts this program with `more` arguments in the environment required by the network, and returns its
/// exit.
async fn guard(binary: &Path, network: NetworkKind, more: &[&str]) -> Result<Exit, Failure> {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    arguments.extend(more.iter().map(OsString::from));
    arguments.push("--inside".into());
    let started = match network {
        NetworkKind::Namespaces => "unshare".into(),
        NetworkKind::Proxies => binary.to_string_lossy(),
    };
    let ended = isolation::run_guarded(network, binary, &arguments)
        .await
        .map_err(|error| Failure::new(format!("cannot start `{started}`: {error}")))?;
    match ended.code() {
        Some(0) => Ok(Exit::Ok),
        Some(code) if code == i32::from(Exit::Usage.code()) => Ok(Exit::Usage),
        Some(_) => Ok(Exit::Error),
        None => Err(Failure::new(format!(
            "the process in the namespace ended with {ended}"
        ))),
    }
}

/// Runs a test until it ends or an end is requested. All its processes are gone when this returns.
async fn play<Report, Error: std::error::Error + 'static>(
    what: &str,
    played: impl Future<Output = Result<Report, Error>>,
) -> Result<Report, Failure> {
    let listening = |error| Failure::new(format!("cannot read from the guard: {error}"));
    let guard_gone = isolation::guard_gone().map_err(listening)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(listening)?;
    let stopped = || Failure::new(format!("{what} stopped: interrupted"));
    tokio::select! {
        played = played => {
            played.map_err(|error| Failure::new(format!("{what} stopped: {}", chain(&error))))
        }
        _ = guard_gone => Err(stopped()),
        _ = tokio::signal::ctrl_c() => Err(stopped()),
        _ = terminate.recv() => Err(stopped()),
    }
}

fn print_report(screen: &Screen, report: &TrialsReport) -> Result<Exit, Failure> {
    let text = match screen.format {
        Format::Table | Format::Wide | Format::Name => report.to_string(),
        format => render_document(format, report)?,
    };
    screen.report(&text)?;
    Ok(if report.holds() {
        Exit::Ok
    } else {
        Exit::Error
    })
}
