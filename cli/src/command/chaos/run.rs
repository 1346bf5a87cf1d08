//! `muster chaos run`: real processes under load and faults, judged.

use std::num::NonZero;
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use muster_chaos::run::{Profile, RunOptions, RunReport, TargetOptions, run_target};
use tokio::signal::unix::{SignalKind, signal};

use super::target::Target;
use super::{Apart, STOP_MAX, guard, play};
use crate::command::demo::{own_binary, runtime, trainer_program};
use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, render_document};
use crate::service::chain;

/// `muster chaos run`
///
/// Three replicas and four hosts as processes, each in a network namespace of its own, on real disks; users who submit,
/// read and cancel without a pause, watchers at every replica, tasks that lock their GPUs and keep a book of it. One
/// thing after another is broken and repaired. Then everything that was seen is held against the replicated log.
///
/// With --target the same users and watchers work on a cluster of yours. Nothing is done to it but what --allow names, and
/// nothing that would hit a job of anybody else. Ctrl-C clears away what the run made.
///
/// Writes report.md, report.html, report.json and the histories. Ends with 0 if every promise held, with 1 if one was
/// broken or if the run proves nothing; then the cluster's folder stays. Needs `unshare`, `nsenter`, `mount` and `ip`, and the right to make namespaces;
/// slow-fsync, io-error and clock also need `cc`. None of that with --target.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 accepted, every promise held; 1 rejected (one was broken), invalid (too little load, or a fault without its \
effect: the run proves nothing), or the run itself failed; 64 usage.

A cluster of our own needs `unshare`, `nsenter`, `ip` and `mount` and the right to make namespaces (root, or user \
namespaces); profiles slow-fsync, io-error, clock and all also need `cc`. --target needs none of that. docs/chaos.md has \
the profiles, the judges, and what may be done to a cluster of yours.")]
pub(crate) struct Run {
    /// What is broken, in a cluster of our own [default: smoke]
    #[arg(long, value_name = "NAME", value_parser = profile_parser(), conflicts_with = "target")]
    profile: Option<Profile>,
    /// How often each fault is made
    #[arg(long, default_value = "1", value_name = "COUNT")]
    repetitions: NonZero<u32>,
    /// Draws what users do and who is hit; times differ from run to run
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Folder of the report
    #[arg(long, default_value = "chaos-report", value_name = "FOLDER")]
    out: PathBuf,
    /// The program to begin with; only for profile `upgrade`, which replaces it by this one
    #[arg(long, value_name = "FILE", conflicts_with = "target")]
    previous: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    apart: Apart,
}

fn profile_parser() -> impl TypedValueParser<Value = Profile> {
    let names = PossibleValuesParser::new(Profile::ALL.map(Profile::name));
    names.try_map(|name| Profile::named(&name).ok_or("no such profile"))
}

impl Run {
    /// Does it.
    pub(crate) fn run(self, options: &Options) -> Result<Exit, Failure> {
        if !self.target.target.is_empty() {
            return self.run_target(options);
        }
        let profile = self.profile.unwrap_or(Profile::Smoke);
        if profile == Profile::Upgrade && self.previous.is_none() {
            return Err(Failure::usage(
                "profile upgrade needs the program to begin with: --previous FILE",
            ));
        }
        if profile == Profile::Upgrade && self.repetitions.get() > 1 {
            return Err(Failure::usage(
                "a cluster is upgraded once: --repetitions is for the other profiles",
            ));
        }
        let binary = own_binary()?;
        let trainer = trainer_program(self.apart.trainer, &binary)?;
        let runtime = runtime()?;
        if !self.apart.inside {
            return runtime.block_on(guard(&binary));
        }
        let out = std::path::absolute(&self.out)
            .map_err(|error| Failure::new(format!("--out {}: {error}", self.out.display())))?;
        let wanted = RunOptions {
            binary,
            previous: self.previous,
            trainer,
            profile,
            repetitions: self.repetitions.get(),
            seed: self.seed,
            out: out.clone(),
            keep: self.apart.keep,
        };
        let run = runtime.block_on(play("the run", muster_chaos::run::run(&wanted)));
        // A cluster that is being stopped is stopped to the end.
        runtime.shutdown_timeout(STOP_MAX);
        tell(options, &run?, &out)
    }

    /// The same on a cluster of others.
    fn run_target(self, options: &Options) -> Result<Exit, Failure> {
        let out = std::path::absolute(&self.out)
            .map_err(|error| Failure::new(format!("--out {}: {error}", self.out.display())))?;
        let wanted = TargetOptions {
            repetitions: self.repetitions.get(),
            seed: self.seed,
            out: out.clone(),
            ..self
                .target
                .wanted(options, self.apart.trainer, self.repetitions)?
        };
        let run = runtime()?.block_on(async {
            let mut terminate = signal(SignalKind::terminate())
                .map_err(|error| Failure::new(format!("cannot listen to signals: {error}")))?;
            let stop = async {
                tokio::select! {
                    _ = tokio::signal::ctrl_c() => {}
                    _ = terminate.recv() => {}
                }
            };
            run_target(&wanted, stop)
                .await
                .map_err(|error| Failure::new(format!("the run stopped: {}", chain(&error))))
        });
        tell(options, &run?, &out)
    }
}

/// Prints a report.
fn tell(options: &Options, report: &RunReport, out: &Path) -> Result<Exit, Failure> {
    let screen = options.screen();
    let text = match screen.format {
        Format::Table | Format::Wide | Format::Name => {
            format!("{report}\nreport: {}\n", out.join("report.html").display())
        }
        format => render_document(format, report)?,
    };
    screen.data(&text)?;
    Ok(if report.holds() {
        Exit::Ok
    } else {
        Exit::Error
    })
}
