//! `muster chaos run`: a cluster of real processes under load and faults, and independent checkers.
//!
//! Replicas and hosts can be cut off from each other. Users submit, read and cancel; watchers listen at
//! every replica; tasks lock their GPUs and record them in a ledger. A nemesis injects one fault at a time
//! and repairs it. In the end the replicated log is read from the replicas' disks and replayed: all other
//! evidence is compared with it. No claim of the cluster about itself is trusted.
//!
//! A run with too little load, or without an event that a checker needs, is *invalid*: it proves nothing,
//! one way or the other.

mod checkers;
mod clock;
mod external;
mod history;
mod load;
mod lock_ledger;
mod nemesis;
mod options;
mod profile;
mod replay;
mod report;
mod state_snapshots;

use std::path::PathBuf;
use std::sync::Arc;
use std::{fs, io};

use muster_client::{ClientConfig, ClientError};
use muster_model::ids::Revision;
use muster_proto::v1;
use muster_raft_store::OpenError;
use muster_worker::journal::JournalError;
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

pub use checkers::{Check, Invariant, Violation};
pub use external::{EXTERNAL_FAULTS, TargetOptions, run_target};
pub use options::RunOptions;
pub use profile::Profile;
pub use report::{Coverage, Distribution, FaultMeasurements, RunReport, Verdict};

use checkers::Evidence;
use clock::{RunSpan, now_us};
use history::History;
use load::{LoadSpec, Users, WatchedEvents, Watchers};
use lock_ledger::LockLedger;
use nemesis::{Episode, FaultTools, Nemesis, StoppedCluster};
use options::{
    DRAIN_TIMEOUT, GPUS_PER_HOST, OPERATORS_ROUND, POLL, RAFT, REPLICAS, SHORT_LOG, TIMINGS,
    WHOLE_LOG, WORKERS,
};
use replay::Observation;
use state_snapshots::StateSnapshot;

use crate::cluster::timeline::{LineKind, Output, Timeline};
use crate::cluster::{
    ClusterError, ClusterOptions, Fault, LocalCluster, NetworkKind, TestbedError, raise_loopback,
};
use crate::error_chain::chain;

/// A run without a verdict: the harness failed, not the cluster.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The local cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The cluster did not start.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// A call that an undisturbed cluster must answer failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// A replica's data could not be read.
    #[error(transparent)]
    Remains(#[from] OpenError),
    /// An agent's journal could not be read.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// I/O error of a file or program.
    #[error("{operation}")]
    Io {
        /// The failed operation.
        operation: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The report could not be written as JSON.
    #[error("writing the report as JSON")]
    Json(#[source] serde_json::Error),
    /// An unexpected condition in the harness.
    #[error("{0}")]
    Harness(String),
}

impl RunError {
    pub(super) fn io(operation: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let operation = operation.into();
        move |source| Self::Io { operation, source }
    }

    fn json(source: serde_json::Error) -> Self {
        Self::Json(source)
    }
}

/// Runs a profile and writes the report; with a network of namespaces, in a private namespace (see
/// [`crate::trials::apart`]). Progress goes to standard error.
///
/// # Errors
/// If the harness itself fails. A cluster that violates an invariant is no error, but a verdict.
pub async fn run(options: &RunOptions) -> Result<RunReport, RunError> {
    let timeline = Timeline::begin(Output::Stderr);
    if options.network == NetworkKind::Namespaces {
        raise_loopback().map_err(ClusterError::from)?;
    }
    // First of all: an unwritable report must not cost an hour of work.
    let making = RunError::io(format!(
        "creating the folder of the report, {}",
        options.out.display()
    ));
    fs::create_dir_all(&options.out).map_err(making)?;
    let cluster = start_cluster(options)?;
    let folder = cluster.folder().display().to_string();
    timeline.print_line(LineKind::Stage, &format!("data and logs: {folder}"));
    let ledger = cluster.shared_folder().join("gpu-ledger");
    fs::create_dir_all(&ledger).map_err(RunError::io(format!("creating {}", ledger.display())))?;
    let history = Arc::new(History::default());
    let tools = FaultTools {
        binary: options.binary.clone(),
        trainer: options.trainer.clone(),
        ledger: ledger.clone(),
    };
    let random = ChaCha8Rng::seed_from_u64(options.seed);
    let mut nemesis = Nemesis::new(cluster, tools, random, Arc::clone(&history), timeline).await?;
    let disturbed = disturb(options, &mut nemesis, &history, timeline).await;
    let disturbed = match disturbed {
        Ok(disturbed) => disturbed,
        Err(error) => {
            leave(nemesis, timeline).await;
            return Err(error);
        }
    };
    timeline.print_line(
        LineKind::Stage,
        "the cluster has ended; its log is read and replayed",
    );
    let paused = tokio::task::spawn_blocking(move || nemesis.pause());
    let paused = paused.await.map_err(panicked)??;
    let options = options.clone();
    let judged = tokio::task::spawn_blocking(move || {
        let mut paused = paused;
        let report = conclude(&options, &paused, disturbed);
        // The files are needed to find the cause: a run cannot be repeated exactly.
        if options.keep || !report.as_ref().is_ok_and(RunReport::holds) {
            paused.keep()?;
            let kept = format!("kept for inspection: {}", paused.folder().display());
            timeline.print_line(LineKind::Stage, &kept);
        }
        paused.clear()?;
        report
    });
    judged.await.map_err(panicked)?
}

/// Ends the cluster after a failed run and keeps its files, the only evidence of the cause.
async fn leave(nemesis: Nemesis, timeline: Timeline) {
    let kept = format!(
        "kept for inspection: {}",
        nemesis.cluster.folder().display()
    );
    let left = tokio::task::spawn_blocking(move || {
        let mut paused = nemesis.pause()?;
        paused.keep()?;
        paused.clear()
    });
    // The caller reports the original failure; this one followed from it.
    if let Err(error) = left.await.map_err(panicked).flatten() {
        timeline.print_line(LineKind::Fault, &chain(&error));
    }
    timeline.print_line(LineKind::Stage, &kept);
}

fn panicked(error: tokio::task::JoinError) -> RunError {
    RunError::Harness(format!("the harness panicked: {error}"))
}

fn start_cluster(options: &RunOptions) -> Result<LocalCluster, RunError> {
    let faults = options.profile.faults();
    let first = match (faults.contains(&Fault::RollingUpgrade), &options.previous) {
        (true, None) => {
            let missing = "profile `upgrade` needs the build to upgrade from (--previous FILE)";
            return Err(RunError::Harness(missing.to_owned()));
        }
        (true, Some(_)) if options.repetitions > 1 => {
            let once = "a cluster is upgraded once: profile `upgrade` takes one repetition";
            return Err(RunError::Harness(once.to_owned()));
        }
        (true, Some(previous)) => previous,
        (false, _) => &options.binary,
    };
    if options.profile.needs_namespaces() && options.network != NetworkKind::Namespaces {
        let (name, network) = (options.profile.name(), options.network.name());
        let mounts = format!(
            "profile `{name}` mounts small disks: not possible with a network of {network}"
        );
        return Err(RunError::Harness(mounts));
    }
    let gpus = WORKERS as u32 * GPUS_PER_HOST;
    if faults.contains(&Fault::GpuFaulted) && options.repetitions > gpus {
        let few = format!("each of the {gpus} GPUs is broken once: at most {gpus} repetitions");
        return Err(RunError::Harness(few));
    }
    let log = match options.profile {
        Profile::SnapshotStorm => SHORT_LOG,
        _ => WHOLE_LOG,
    };
    Ok(LocalCluster::start(ClusterOptions {
        replicas: REPLICAS,
        spare: faults.contains(&Fault::MembersChanged),
        workers: WORKERS,
        gpus_per_host: GPUS_PER_HOST,
        keep: options.keep,
        network: Some(options.network),
        fault_library: faults.iter().any(|fault| fault.needs_library()),
        log,
        timings: TIMINGS,
        raft: RAFT,
        ..ClusterOptions::small(first.clone())
    })?)
}

/// Observations while faults were injected and repaired.
struct Disturbed {
    episodes: Vec<Episode>,
    history: Arc<History>,
    watched: Vec<WatchedEvents>,
    calls_until_us: u64,
    last: Revision,
    ledger: PathBuf,
    pictures: Vec<StateSnapshot>,
    /// Violations found in states that could not be read.
    violations: Vec<Violation>,
    span: RunSpan,
}

/// Prepares the cluster, lets users and watchers work alongside the nemesis, then waits until all jobs have
/// ended.
async fn disturb(
    options: &RunOptions,
    nemesis: &mut Nemesis,
    history: &Arc<History>,
    timeline: Timeline,
) -> Result<Disturbed, RunError> {
    let faults = options.profile.faults();
    nemesis.prepare(&faults).await?;
    let from_us = now_us();
    let cluster = ClientConfig::new(nemesis.cluster.addresses());
    let ledger = nemesis.ledger().to_owned();
    let watchers = Watchers::begin(&cluster, Revision(0)).await?;
    let workshop = LoadSpec::own(&options.trainer, &ledger);
    let users = Users::begin(&cluster, options.seed, &workshop, history).await?;
    let mut episodes = Vec::new();
    'rounds: for round in 1..=options.repetitions {
        let (of, count) = (options.repetitions, faults.len());
        timeline.print_line(
            LineKind::Stage,
            &format!("round {round} of {of} with {count} faults"),
        );
        for fault in &faults {
            let episode = nemesis.strike(*fault).await?;
            let is_whole = episode.recovered_us.is_some();
            episodes.push(episode);
            if !is_whole {
                // Further faults would show nothing else.
                break 'rounds;
            }
        }
    }
    users.end().await;
    let calls_until_us = now_us();
    timeline.print_line(
        LineKind::Stage,
        "no more faults and calls; waiting for all jobs to end",
    );
    let last = await_drained(nemesis).await;
    if let Some(episode) = episodes.last_mut() {
        episode.anomalies.extend(nemesis.take_odd());
    }
    let watched = watchers.end(last).await;
    let (pictures, violations) = nemesis.pictures().await;
    Ok(Disturbed {
        episodes,
        history: Arc::clone(history),
        watched,
        calls_until_us,
        last,
        ledger,
        pictures,
        violations,
        span: RunSpan {
            from_us,
            to_us: now_us(),
        },
    })
}

/// Waits until every job has ended, or time is up: the checkers report those that have not. Returns the
/// newest revision seen.
async fn await_drained(nemesis: &mut Nemesis) -> Revision {
    let deadline = Instant::now() + DRAIN_TIMEOUT;
    let mut newest = Revision(0);
    let mut round = Instant::now();
    while Instant::now() < deadline {
        if Instant::now() >= round {
            round += OPERATORS_ROUND;
            nemesis.unblock_all().await;
        }
        // A cluster that does not answer cannot confirm that its jobs have ended.
        if let Ok(status) = nemesis.client.status(v1::Consistency::Linearizable).await {
            newest = newest.max(Revision(status.revision));
            let has_ended = |jobs: v1::JobCounts| jobs.queued + jobs.running + jobs.cancelling == 0;
            if status.jobs.is_some_and(has_ended) {
                break;
            }
        }
        tokio::time::sleep(POLL).await;
    }
    newest
}

/// Reads the remaining data, checks it and writes the report.
fn conclude(
    options: &RunOptions,
    paused: &StoppedCluster,
    disturbed: Disturbed,
) -> Result<RunReport, RunError> {
    let span = disturbed.span;
    let operations = disturbed.history.operations();
    let sights = operations.iter().filter_map(Observation::of).collect();
    let mut truth = replay::replay(&paused.data_folders(), sights, disturbed.pictures)?;
    truth.violations.extend(disturbed.violations);
    let evidence = Evidence {
        operations,
        watched: disturbed.watched,
        calls_until_us: disturbed.calls_until_us,
        last: disturbed.last,
        ledger: LockLedger::read(&disturbed.ledger)?,
        log: truth,
        journals: paused.journals()?,
        episodes: disturbed.episodes,
    };
    let report = RunReport::of(options, &evidence, span);
    report::write(&options.out, &report, &evidence, span)?;
    Ok(report)
}
