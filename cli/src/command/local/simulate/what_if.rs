//! `muster simulate --from-cluster`: predicts the effect of a change to a running cluster.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use muster_client::{Client, Export};
use muster_engine::state::State;
use muster_job_file::strict_yaml::FileError;
use muster_log::{LogError, read_state};
use muster_model::command::BlockTarget;
use muster_model::ids::GpuUuid;
use muster_model::quota::QueueTree;
use muster_model::rejection::Rejection;
use muster_model::spec::JobSpec;
use muster_model::time::TimeMs;
use muster_simulate::fork::{
    ASSUMED_RUN_MS_DEFAULT, Change, Difference, Estimator, Fork, ForkError, ForkProgress,
    ForkSettings, HORIZON_MS_DEFAULT, HORIZON_MS_MAX, what_if,
};

use crate::command::common::configuration::ConfigFile;
use crate::command::gpu::{GpuRef, no_such_gpu};
use crate::command::job::submit::read_files;
use crate::connection::Options;
use crate::exit::Exit;
use crate::failure::{Failure, chain};
use crate::output::{Format, Screen, render_document, span};
use crate::parse;
use crate::view::WhatIfView;

/// Template of the transfer's progress bar: received bytes out of all.
const TRANSFER: &str = "{prefix:>10} {bar:32} {bytes} of {total_bytes}";
/// Template of the simulation's progress bar: elapsed virtual time out of all.
const PLAYING: &str = "{prefix:>10} {bar:32} {percent:>3}% {msg}";
/// Shortest assumed running time: shorter ones cost more work without better predictions.
const ASSUMED_RUN_MIN: Duration = Duration::from_secs(1);

/// Prediction for the running cluster.
#[derive(Debug, Args)]
#[command(next_help_heading = "What if")]
pub(super) struct WhatIf {
    /// Fork the state of the running cluster, and predict the effect of the changes below; changes nothing
    #[arg(long, conflicts_with_all = [
        "cluster", "jobs", "faults", "policy", "vcs", "no_borrow", "strict", "defragment", "limits", "learn",
        "untold_checkpoints", "skip", "jobs_max", "load", "checkpoint_interval", "packing",
    ])]
    from_cluster: bool,
    /// Predict: these jobs were submitted; job files as `muster job submit -f` takes them
    #[arg(long, value_name = "FILE")]
    submit: Vec<String>,
    /// Predict: these hosts were drained: node[01-16]
    #[arg(long, value_name = "HOSTS")]
    drain: Vec<String>,
    /// Predict: these hosts were blocked; running work continues
    #[arg(long, value_name = "HOSTS")]
    block: Vec<String>,
    /// Predict: these GPUs were blocked, by UUID or as HOST:INDEX (node[01-04]:3)
    #[arg(long, value_name = "GPU")]
    block_gpu: Vec<String>,
    /// Time to look ahead (1d)
    #[arg(long, value_name = "DURATION", value_parser = parse::duration)]
    horizon: Option<Duration>,
    /// Run time of work with neither a time limit nor finished jobs of the same queue, user and name (1h;
    /// `forever`)
    #[arg(long, value_name = "DURATION", value_parser = assumed_run)]
    assume_run_time: Option<AssumedRun>,
}

/// Running time; `None` if it never ends.
#[derive(Clone, Copy, Debug)]
struct AssumedRun(Option<Duration>);

/// Options shared with traces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared<'a> {
    /// The queue tree.
    pub(super) queues: Option<&'a Path>,
    /// Instants between two audits.
    pub(super) audit_every: Option<u64>,
    /// Folder for files.
    pub(super) report: Option<&'a Path>,
}

/// The changes, and the file of a refused tree.
struct Question {
    changes: Vec<Change>,
    /// Blocked GPUs, to be resolved in the cluster's state.
    gpus: Vec<GpuRef>,
    /// Number of changes that precede their blocks.
    before_gpus: usize,
    queues: Option<ConfigFile<QueueTree>>,
}

impl WhatIf {
    /// Whether a running cluster is queried.
    pub(super) const fn is_requested(&self) -> bool {
        self.from_cluster
    }

    /// Refuses options that need a cluster. (`requires` would not do: `--from-cluster` is exempt where
    /// `--cluster` is given, because both together are refused.)
    pub(super) fn refuse_without_cluster(&self) -> Result<(), Failure> {
        let given = [
            ("--submit", !self.submit.is_empty()),
            ("--drain", !self.drain.is_empty()),
            ("--block", !self.block.is_empty()),
            ("--block-gpu", !self.block_gpu.is_empty()),
            ("--horizon", self.horizon.is_some()),
            ("--assume-run-time", self.assume_run_time.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(Failure::usage(format!(
                "{option} is about a running cluster: it needs --from-cluster"
            ))),
            None => Ok(()),
        }
    }

    /// Runs the command.
    pub(super) fn run(&self, options: &Options, shared: Shared<'_>) -> Result<Exit, Failure> {
        let screen = options.screen();
        let settings = self.settings(shared.audit_every)?;
        let mut question = self.question(shared.queues)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::new(format!("cannot start the runtime: {error}")))?;
        let export = runtime.block_on(async {
            let client = options.connect().await?;
            export(&client, &screen).await
        })?;
        let fork = read(&export)?;
        drop(export);
        question.find_gpus(&fork.state)?;
        let difference = play(&fork, &question, settings, &screen)?;
        show(&difference, &screen, shared.report)?;
        Ok(Exit::Ok)
    }

    fn settings(&self, audit_every: Option<u64>) -> Result<ForkSettings, Failure> {
        let ms = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let horizon_ms = self.horizon.map_or(HORIZON_MS_DEFAULT, ms);
        if !(1..=HORIZON_MS_MAX).contains(&horizon_ms) {
            let longest = span(HORIZON_MS_MAX);
            let message = format!("--horizon: at most {longest} (HORIZON_MS_MAX), and more than 0");
            return Err(Failure::usage(message));
        }
        let assumed = self.assume_run_time.map(|assumed| assumed.0.map(ms));
        Ok(ForkSettings {
            horizon_ms,
            estimator: Estimator {
                assumed_ms: assumed.unwrap_or(Some(ASSUMED_RUN_MS_DEFAULT)),
            },
            audit_every,
        })
    }

    /// All changes: first the queues, then blocks and drains, then the jobs.
    fn question(&self, queues: Option<&Path>) -> Result<Question, Failure> {
        let read = |path: &Path| ConfigFile::<QueueTree>::read(&path.to_string_lossy());
        let queues = queues.map(read).transpose()?;
        let mut changes = Vec::new();
        if let Some(file) = &queues {
            changes.push(Change::Queues(Arc::new(file.value.clone())));
        }
        let hosts = |lists: &[String]| parse::expand_all(lists).map_err(Failure::usage);
        changes.extend(hosts(&self.drain)?.into_iter().map(Change::Drain));
        let blocks = hosts(&self.block)?.into_iter().map(BlockTarget::Host);
        changes.extend(blocks.map(Change::Block));
        let gpus = GpuRef::parse_all(&self.block_gpu)?;
        let before_gpus = changes.len();
        for job in read_files(&self.submit)? {
            let spec = JobSpec::try_from(job.spec).map_err(|error| Failure::internal(&error))?;
            changes.push(Change::Submit(Arc::new(spec)));
        }
        if changes.is_empty() && gpus.is_empty() {
            return Err(
                Failure::usage("--from-cluster needs a change to predict").help(
                    "--submit FILE, --drain HOSTS, --block HOSTS, --block-gpu GPU or --queues FILE",
                ),
            );
        }
        Ok(Question {
            changes,
            gpus,
            before_gpus,
            queues,
        })
    }
}

impl Question {
    /// Inserts the blocks of GPUs into the changes.
    fn find_gpus(&mut self, state: &State) -> Result<(), Failure> {
        let found = self.gpus.iter().map(|gpu| find_gpu(state, gpu));
        let found: Vec<GpuUuid> = found.collect::<Result<_, _>>()?;
        let blocks = found.into_iter().map(BlockTarget::Gpu).map(Change::Block);
        let place = self.before_gpus..self.before_gpus;
        self.changes.splice(place, blocks);
        Ok(())
    }
}

fn find_gpu(state: &State, wanted: &GpuRef) -> Result<GpuUuid, Failure> {
    match wanted {
        GpuRef::Uuid(uuid) => Ok(*uuid),
        GpuRef::Place { host, index } => {
            let gpus = state.host_by_name(host).map(|host| &host.gpus);
            let gpu = gpus.and_then(|gpus| gpus.iter().find(|gpu| gpu.index == *index));
            gpu.map(|gpu| gpu.uuid)
                .ok_or_else(|| no_such_gpu(host, *index))
        }
    }
}

fn assumed_run(text: &str) -> Result<AssumedRun, String> {
    if text == "forever" {
        return Ok(AssumedRun(None));
    }
    let assumed = parse::duration(text)?;
    if assumed < ASSUMED_RUN_MIN {
        let least = ASSUMED_RUN_MIN.as_secs();
        return Err(format!("at least {least}s (ASSUMED_RUN_MIN), or `forever`"));
    }
    Ok(AssumedRun(Some(assumed)))
}

async fn export(client: &Client, screen: &Screen) -> Result<Export, Failure> {
    let bar = bar(screen, TRANSFER, "state")?;
    let exported = client
        .export_state(&mut |progress| {
            bar.set_length(progress.size_bytes);
            bar.set_position(progress.done_bytes);
        })
        .await;
    bar.finish_and_clear();
    exported.map_err(|error| {
        if error.is_unknown_request() {
            return Failure::new("this cluster's version of Muster cannot export its state")
                .help("`muster cluster status` shows its version; what-if needs a newer one");
        }
        Failure::from(error)
    })
}

/// Reads the state of an export.
fn read(export: &Export) -> Result<Fork, Failure> {
    let head = &export.head;
    let state = read_state(&mut export.bytes.as_slice()).map_err(|error| {
        let failure = Failure::new(chain(&error)).about("the cluster's state");
        match error {
            LogError::NewerVersion { .. } | LogError::OlderVersion { .. } => failure.help(format!(
                "the cluster runs version {}, this is {}: use the cluster's own version of `muster`",
                head.version,
                env!("CARGO_PKG_VERSION")
            )),
            LogError::Malformed { .. } | LogError::Read(_) => failure,
        }
    })?;
    Ok(Fork {
        state,
        now: TimeMs(head.time_ms),
    })
}

fn play(
    fork: &Fork,
    question: &Question,
    settings: ForkSettings,
    screen: &Screen,
) -> Result<Difference, Failure> {
    let bar = bar(screen, PLAYING, "as it is")?;
    bar.set_length(2 * settings.horizon_ms);
    let played = what_if(fork, &question.changes, settings, &mut |progress| {
        show_progress(&bar, settings, progress);
    });
    bar.finish_and_clear();
    played.map_err(|error| match error {
        ForkError::Refused { change, rejection } => refused(question, &change, &rejection),
        ForkError::Simulate(error) => Failure::new(chain(&error))
            .help("inconsistent engine state; please report this as a bug"),
    })
}

fn show_progress(bar: &ProgressBar, settings: ForkSettings, progress: ForkProgress) {
    let before_ms = if progress.is_changed {
        bar.set_prefix("changed");
        settings.horizon_ms
    } else {
        0
    };
    bar.set_position(before_ms + progress.virtual_ms);
    bar.set_message(span(progress.virtual_ms));
}

/// Error for a change that the cluster would refuse; broken rules of a queue tree are shown at their
/// position.
fn refused(question: &Question, change: &str, rejection: &Rejection) -> Failure {
    if let (Rejection::InvalidConfiguration(broken), Some(file)) = (rejection, &question.queues) {
        let broken = broken
            .iter()
            .map(|it| (it.field.as_str(), it.rule.as_str()));
        let errors = file.locate(broken);
        return Failure::list(errors.iter().map(FileError::to_string).collect());
    }
    Failure::new(format!("{change} would be refused: {rejection}"))
}

fn show(difference: &Difference, screen: &Screen, report: Option<&Path>) -> Result<(), Failure> {
    if let Some(folder) = report {
        let written = difference.write(folder);
        let paths: Vec<PathBuf> = written.map_err(|error| Failure::new(chain(&error)))?;
        for path in paths {
            screen.progress(&format!("wrote {}", path.display()));
        }
    }
    let view = WhatIfView::new(difference);
    let text = match screen.format {
        Format::Table | Format::Wide => view.render(screen.format == Format::Wide),
        Format::Name => view.names(),
        format => render_document(format, difference)?,
    };
    screen.data(&text)
}

/// A bar that hides itself if stderr is not a terminal.
fn bar(screen: &Screen, template: &str, prefix: &'static str) -> Result<ProgressBar, Failure> {
    let bar = if screen.quiet {
        ProgressBar::hidden()
    } else {
        ProgressBar::new(1)
    };
    let style =
        ProgressStyle::with_template(template).map_err(|error| Failure::internal(&error))?;
    bar.set_style(style);
    bar.set_prefix(prefix);
    Ok(bar)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assumed_running_times_are_checked() {
        assert!(assumed_run("forever").is_ok_and(|assumed| assumed.0.is_none()));
        assert!(
            assumed_run("2h").is_ok_and(|assumed| assumed.0 == Some(Duration::from_secs(7_200)))
        );
        assert!(
            ["1ms", "0s", "soon"]
                .iter()
                .all(|text| assumed_run(text).is_err())
        );
    }
}
