//! `muster chaos`: proofs that the product survives.

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
use muster_chaos::cluster::NetworkKind;
use muster_chaos::trials::{Trial, TrialsOptions, TrialsReport, apart};
use tokio::signal::unix::{SignalKind, signal};

use crate::command::demo::{own_binary, runtime, trainer_program};
use crate::command::inject::Inject;
use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::output::{Format, Screen, render_document};

/// Longest that a cluster which is being stopped is waited for.
const STOP_MAX: Duration = Duration::from_secs(30);

/// `muster chaos`
#[derive(Debug, Subcommand)]
pub(crate) enum Chaos {
    /// Simulate whole clusters under faults, one per seed; the same seed gives the same cluster
    Sim(sim::Sim),
    /// Make a failure of a simulated cluster small: leave out faults as long as it still fails
    Shrink(shrink::Shrink),
    /// Run a simulated cluster again and step through what happened
    Replay(replay::Replay),
    /// Break a real cluster under load, fault after fault, and judge what everybody saw
    Run(run::Run),
    /// Break a real cluster under a training, one fault at a time, and measure what that costs
    Tasks(Tasks),
    /// Make a host of a running cluster that simulates its GPUs see a fault
    Inject(Inject),
}

/// `muster chaos tasks`
///
/// Three replicas and three workers as processes, each in a network namespace of its own; a training of four ranks. One
/// trial after another breaks one thing, a while after a checkpoint. Ends with a table, and with 0 only if every promise
/// held. Needs `unshare`, `nsenter`, `mount` and `ip`, and the right to make namespaces.
#[derive(Debug, Args)]
pub(crate) struct Tasks {
    /// Only this trial; may be given several times
    #[arg(long, value_name = "NAME", value_parser = trial_parser())]
    trial: Vec<Trial>,
    /// The program that workers begin with in trial `agent-upgraded`, where this one takes the place of an agent; a copy of
    /// this one does if none is given
    #[arg(long, value_name = "FILE")]
    previous: Option<PathBuf>,
    #[command(flatten)]
    apart: Apart,
}

/// What everything has in common that makes a place of its own and starts clusters in it.
#[derive(Debug, Args)]
struct Apart {
    /// The example trainer; beside this program if none is given
    #[arg(long, env = "MUSTER_TRAINER_BIN", value_name = "FILE")]
    trainer: Option<PathBuf>,
    /// Leave what the clusters wrote (data and logs) behind
    #[arg(long)]
    keep: bool,
    /// Set by the program itself where it is under its own guard
    #[arg(long, hide = true)]
    inside: bool,
}

fn trial_parser() -> impl TypedValueParser<Value = Trial> {
    let names = PossibleValuesParser::new(Trial::ALL.map(Trial::name));
    names.try_map(|name| Trial::named(&name).ok_or("no such trial"))
}

impl Chaos {
    /// Does it.
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
        if self.previous.is_some() && !trials.contains(&Trial::AgentUpgraded) {
            let name = Trial::AgentUpgraded.name();
            return Err(Failure::usage(format!("--previous is for trial {name}")));
        }
        let binary = own_binary()?;
        let trainer = trainer_program(self.apart.trainer, &binary)?;
        let runtime = runtime()?;
        if !self.apart.inside {
            return runtime.block_on(guard(&binary, NetworkKind::Namespaces, &[]));
        }
        let wanted = TrialsOptions {
            binary,
            previous: self.previous,
            trainer,
            trials,
            keep: self.apart.keep,
        };
        let played = runtime.block_on(play("the trials", muster_chaos::trials::run(&wanted)));
        // A cluster that is being stopped is stopped to the end.
        runtime.shutdown_timeout(STOP_MAX);
        tell(&options.screen(), &played?)
    }
}

/// Starts this program again, with `more` arguments, in the place that a network needs, and ends as it does.
async fn guard(binary: &Path, network: NetworkKind, more: &[&str]) -> Result<Exit, Failure> {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    arguments.extend(more.iter().map(OsString::from));
    arguments.push("--inside".into());
    let started = match network {
        NetworkKind::Namespaces => "unshare".into(),
        NetworkKind::Proxies => binary.to_string_lossy(),
    };
    let ended = apart::run_guarded(network, binary, &arguments)
        .await
        .map_err(|error| Failure::new(format!("cannot start `{started}`: {error}")))?;
    match ended.code() {
        Some(0) => Ok(Exit::Ok),
        Some(code) if code == i32::from(Exit::Usage.code()) => Ok(Exit::Usage),
        Some(_) => Ok(Exit::Error),
        None => Err(Failure::new(format!(
            "what was started in there ended with {ended}"
        ))),
    }
}

/// Plays something until it is over or an end is wanted. What it started is gone when this returns.
async fn play<Report, Error: std::error::Error + 'static>(
    what: &str,
    played: impl Future<Output = Result<Report, Error>>,
) -> Result<Report, Failure> {
    let listening = |error| Failure::new(format!("cannot listen to the guard: {error}"));
    let guard_gone = apart::guard_gone().map_err(listening)?;
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

fn tell(screen: &Screen, report: &TrialsReport) -> Result<Exit, Failure> {
    let text = match screen.format {
        Format::Table | Format::Wide | Format::Name => report.to_string(),
        format => render_document(format, report)?,
    };
    screen.tell(&text)?;
    Ok(if report.holds() {
        Exit::Ok
    } else {
        Exit::Error
    })
}
