//! `muster chaos run`: fault injection on real processes under load, with checks.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use muster_chaos::cluster::NetworkKind;
use muster_chaos::run::{Profile, RunOptions, RunReport, TargetOptions, run_target};
use muster_chaos::trials::isolation;
use tokio::signal::unix::{SignalKind, signal};

use crate::command::local::chaos::target::Target;
use crate::command::local::chaos::{NamespaceOptions, STOP_MAX, guard, play};
use crate::command::local::demo::{own_binary, runtime, trainer_program};
use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::output::{Format, note, render_document};

/// `muster chaos run`
///
/// Three replicas and four hosts as processes that can be disconnected from each other, on real disks; users
/// who submit, read and cancel without a pause, watchers at every replica, tasks that lock their GPUs and
/// record that in a ledger. Faults are injected and repaired one after another. Then all observations are
/// checked against the replicated log.
///
/// With --target the same users and watchers work on an existing cluster. Only faults named by --allow are
/// injected, and none that would affect a job of another user. Ctrl-C removes everything that the run
/// created.
///
/// Writes report.md, report.html, report.json and the histories. Ends with 0 if every promise held, with 1 if
/// one was broken or if the run proves nothing; then the cluster's folder is kept.
///
/// Each replica and each host has its own network namespace; that needs `unshare`, `nsenter`, `ip` and
/// `mount`, and the right to create namespaces. Where they cannot be created, everything is on loopback with
/// a proxy before each replica; disk-full and all are not available then. slow-fsync, io-error and clock also
/// need `cc`. None of that applies to --target.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 accepted, every promise held; 1 rejected (one was broken), invalid (too little load, or a \
fault without its effect: the run proves nothing), or the run itself failed; 64 usage.

--network namespaces needs `unshare`, `nsenter`, `ip` and `mount` and the right to make namespaces (root, or user \
namespaces), --network proxies nothing; profiles disk-full and all need namespaces, and slow-fsync, \
io-error, clock and all also `cc`. --target needs none of that. docs/chaos.md describes the profiles, the \
checkers, and the faults for an existing cluster.")]
pub(crate) struct Run {
    /// The faults to inject, in a cluster of its own [default: smoke]
    #[arg(long, value_name = "NAME", value_parser = profile_parser(), conflicts_with = "target")]
    profile: Option<Profile>,
    /// The network between replicas and hosts, in a cluster of its own [default: namespaces where they can be
    /// created, else proxies]
    #[arg(
        long,
        value_name = "KIND",
        value_parser = network_parser(),
        conflicts_with = "target",
        overrides_with = "network"
    )]
    network: Option<NetworkKind>,
    /// How often each fault is injected
    #[arg(long, default_value = "1", value_name = "COUNT")]
    repetitions: NonZero<u32>,
    /// Seed for the actions of users and the targets of faults; times differ from run to run
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Folder of the report
    #[arg(long, default_value = "chaos-report", value_name = "FOLDER")]
    out: PathBuf,
    /// The program to start with; only for profile `upgrade`, which replaces it by this one
    #[arg(long, value_name = "FILE", conflicts_with = "target")]
    previous: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    namespace_options: NamespaceOptions,
}

fn profile_parser() -> impl TypedValueParser<Value = Profile> {
    let names = PossibleValuesParser::new(Profile::ALL.map(Profile::name));
    names.try_map(|name| Profile::named(&name).ok_or("unknown profile"))
}

fn network_parser() -> impl TypedValueParser<Value = NetworkKind> {
    let names = PossibleValuesParser::new(NetworkKind::ALL.map(NetworkKind::name));
    names.try_map(|name| NetworkKind::named(&name).ok_or("unknown network"))
}

/// The network between replicas and hosts: the requested one, or one that is available here. Some profiles
/// need a certain one.
async fn network_for(
    profile: Profile,
    requested: Option<NetworkKind>,
) -> Result<NetworkKind, Failure> {
    let network = match requested {
        Some(network) => network,
        None => available_network().await,
    };
    if profile.needs_namespaces() && network != NetworkKind::Namespaces {
        let name = profile.name();
        return Err(Failure::usage(format!(
            "profile {name} mounts small disks and needs namespaces (--network namespaces): run it as \
             root, or where user namespaces are allowed, or choose another profile"
        )));
    }
    Ok(network)
}

async fn available_network() -> NetworkKind {
    let Some(refusal) = isolation::refusal().await else {
        return NetworkKind::Namespaces;
    };
    note(&format!(
        "cannot create network namespaces ({refusal}): using proxies instead"
    ));
    NetworkKind::Proxies
}

impl Run {
    /// Runs the command.
    pub(crate) fn run(self, options: &Options) -> Result<Exit, Failure> {
        if !self.target.target.is_empty() {
            return self.run_target(options);
        }
        let profile = self.profile.unwrap_or(Profile::Smoke);
        if profile == Profile::Upgrade && self.previous.is_none() {
            return Err(Failure::usage(
                "profile upgrade needs the previous program: --previous FILE",
            ));
        }
        if profile == Profile::Upgrade && self.repetitions.get() > 1 {
            return Err(Failure::usage(
                "a cluster is upgraded only once: --repetitions is for the other profiles",
            ));
        }
        let runtime = runtime()?;
        let network = runtime.block_on(network_for(profile, self.network))?;
        let binary = own_binary()?;
        let trainer = trainer_program(self.namespace_options.trainer, &binary)?;
        if !self.namespace_options.inside {
            let more = ["--network", network.name()];
            return runtime.block_on(guard(&binary, network, &more));
        }
        let out = std::path::absolute(&self.out)
            .map_err(|error| Failure::new(format!("--out {}: {error}", self.out.display())))?;
        let run_options = RunOptions {
            binary,
            previous: self.previous,
            trainer,
            profile,
            network,
            repetitions: self.repetitions.get(),
            seed: self.seed,
            out: out.clone(),
            keep: self.namespace_options.keep,
        };
        let run = runtime.block_on(play("the run", muster_chaos::run::run(&run_options)));
        // A cluster that is stopping is waited for.
        runtime.shutdown_timeout(STOP_MAX);
        print_report(options, &run?, &out)
    }

    /// Runs against an existing cluster.
    fn run_target(self, options: &Options) -> Result<Exit, Failure> {
        let out = std::path::absolute(&self.out)
            .map_err(|error| Failure::new(format!("--out {}: {error}", self.out.display())))?;
        let target_options = TargetOptions {
            repetitions: self.repetitions.get(),
            seed: self.seed,
            out: out.clone(),
            ..self.target.target_options(
                options,
                self.namespace_options.trainer,
                self.repetitions,
            )?
        };
        let run = runtime()?.block_on(async {
            let mut terminate = signal(SignalKind::terminate())
                .map_err(|error| Failure::new(format!("cannot handle signals: {error}")))?;
            let stop = async {
                tokio::select! {
                    _ = tokio::signal::ctrl_c() => {}
                    _ = terminate.recv() => {}
                }
            };
            run_target(&target_options, stop)
                .await
                .map_err(|error| Failure::new(format!("the run stopped: {}", chain(&error))))
        });
        print_report(options, &run?, &out)
    }
}

/// Prints a report.
fn print_report(options: &Options, report: &RunReport, out: &Path) -> Result<Exit, Failure> {
    let screen = options.screen();
    let text = match screen.format {
        Format::Table | Format::Wide | Format::Name => {
            format!("{report}\nreport: {}\n", out.join("report.html").display())
        }
        format => render_document(format, report)?,
    };
    screen.report(&text)?;
    Ok(if report.holds() {
        Exit::Ok
    } else {
        Exit::Error
    })
}
