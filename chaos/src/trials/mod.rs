//! `muster chaos tasks`: a real training on a real cluster whose hosts have a network each, under one fault
//! at a time.
//!
//! Every trial has a fresh cluster and injects its fault a while after a checkpoint. Results are checked
//! only by the tasks' own records: the final weights, the locks on GPUs, and the run records with the
//! progress of each rank of each attempt.

mod faults;
pub mod isolation;
mod jobs;
mod options;
mod report;
mod stage;
mod trial;

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use muster_client::ClientError;
use muster_model::command::HostHealth;
use muster_model::event::EventKind;
use muster_model::ids::JobId;
use muster_model::lifecycle::JobPhase;
use tokio::time::Instant;

pub use options::TrialsOptions;
pub use report::{Measured, TrialReport, TrialsReport};
pub use trial::Trial;

use options::{FINISH_TIMEOUT, RANKS, TRAINING};
use stage::Stage;

use crate::checkers::{RunRecords, RunRecordsError};
use crate::cluster::timeline::{LineKind, Output, Timeline};
use crate::cluster::{ClusterError, EventTimeout, TestbedError, raise_loopback};
use crate::error_chain::chain;
use crate::workload::ReferenceError;
use crate::workload::training::{self, read_digest};

/// Failure to carry out a trial.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The local cluster failed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The cluster did not start or end.
    #[error(transparent)]
    Testbed(#[from] TestbedError),
    /// The cluster did not answer a call as expected.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// An expected event did not happen.
    #[error(transparent)]
    Timeout(#[from] EventTimeout),
    /// The undisturbed run, or the report of a disturbed one, failed.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// The run records could not be read.
    #[error(transparent)]
    RunRecords(#[from] RunRecordsError),
    /// I/O error of a file or a process.
    #[error("{operation}")]
    Io {
        /// The failed operation.
        operation: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// An unexpected condition.
    #[error("{0}")]
    Odd(String),
}

impl TrialError {
    fn io(operation: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let operation = operation.into();
        move |source| Self::Io { operation, source }
    }
}

/// Carries out the trials one after another, in an isolated environment (see [`apart`]). Progress goes to
/// standard error.
///
/// A trial that cannot be carried out counts as a violation, and the others continue.
///
/// # Errors
/// If our own network cannot be used, or the undisturbed reference run fails.
pub async fn run(options: &TrialsOptions) -> Result<TrialsReport, TrialError> {
    let timeline = Timeline::begin(Output::Stderr);
    raise_loopback().map_err(ClusterError::from)?;
    let weights = train_undisturbed(options, timeline).await?;
    let mut report = TrialsReport {
        trials: Vec::new(),
        weights: weights.clone(),
    };
    let count = options.trials.len();
    for (number, trial) in (1..).zip(&options.trials) {
        let what = format!("trial {number} of {count}: {}", trial.fault.name());
        timeline.print_line(LineKind::Stage, &what);
        let played = play(options, *trial, &weights, timeline).await;
        let outcome = match played {
            Ok(measured) => TrialReport::of(*trial, measured),
            Err(error) => TrialReport::unplayed(*trial, chain(&error)),
        };
        let (kind, word) = match outcome.broken.as_slice() {
            [] => (LineKind::Recovery, "every promise held".to_owned()),
            broken => (LineKind::Fault, format!("BROKEN: {}", broken.join("; "))),
        };
        timeline.print_line(kind, &format!("{}: {word}", trial.fault.name()));
        report.trials.push(outcome);
    }
    Ok(report)
}

async fn train_undisturbed(
    options: &TrialsOptions,
    timeline: Timeline,
) -> Result<String, TrialError> {
    let words = "training once undisturbed, without a scheduler, for comparison";
    timeline.print_line(LineKind::Stage, words);
    let folder = tempfile::tempdir().map_err(TrialError::io("creating a folder"))?;
    let trainer = &options.trainer;
    let trained = training::train_undisturbed(&TRAINING, RANKS, trainer, folder.path());
    let digest = trained.await?;
    timeline.print_line(
        LineKind::Training,
        &format!("undisturbed: weights {digest}"),
    );
    Ok(digest)
}

/// Carries out one trial, from an empty cluster to the end of all processes.
async fn play(
    options: &TrialsOptions,
    trial: Trial,
    calm: &str,
    timeline: Timeline,
) -> Result<Measured, TrialError> {
    let mut stage = Stage::set(options, trial, timeline).await?;
    let played = stage.play(calm).await;
    let ended = stage.tear_down().await;
    let measured = played?;
    ended?;
    Ok(measured)
}

impl Stage<'_> {
    async fn play(&mut self, calm: &str) -> Result<Measured, TrialError> {
        self.prepare().await?;
        self.start_training().await?;
        let (from, began, strike_ms) = (self.testbed.events.position(), Instant::now(), wall_ms());
        self.break_and_repair(from).await?;
        let phase = self.await_end().await;
        let records = RunRecords::read(&self.files.run_records, self.training)?;
        let weights = match phase {
            Some(JobPhase::Succeeded) => read_digest(&self.files.report)?,
            _ => "none".to_owned(),
        };
        Ok(Measured {
            noticed_ms: self.noticed_after(from, began).map(whole_ms),
            back_ms: records.back_after(strike_ms).map(whole_ms),
            attempts: records.attempts(),
            repeated: records.repeated(),
            lived_at_once: records.at_once(),
            double_allocations: self.double_allocations()?,
            phase,
            weights: (weights, calm.to_owned()),
        })
    }

    /// Waits until the training has ended; `None` on timeout.
    async fn await_end(&self) -> Option<JobPhase> {
        let job = self.training;
        let ended = self.testbed.events.wait_for(
            "the end of the training",
            0,
            FINISH_TIMEOUT,
            move |event| matches!(&event.kind, EventKind::JobFinished { job: of, .. } if *of == job),
        );
        match ended.await.ok()?.event.kind {
            EventKind::JobFinished { phase, .. } => Some(phase),
            _ => None,
        }
    }

    /// Time from the fault to the first sign of it in the cluster's events.
    fn noticed_after(&self, from: usize, began: Instant) -> Option<Duration> {
        let job = self.training;
        let sign = self
            .testbed
            .events
            .first_since(from, |event| is_sign(&event.kind, job))?;
        Some(sign.at.saturating_duration_since(began))
    }

    /// Conflicts recorded in the tasks' GPU ledger; fails if they locked no GPU.
    fn double_allocations(&self) -> Result<Vec<String>, TrialError> {
        let ledger = &self.files.ledger;
        let failed = || TrialError::io(format!("reading {}", ledger.display()));
        if std::fs::read_dir(ledger).map_err(failed())?.count() == 0 {
            return Err(TrialError::Odd("no task locked a GPU".to_owned()));
        }
        match std::fs::read_to_string(ledger.join("conflicts")) {
            Ok(conflicts) => Ok(conflicts.lines().map(str::to_owned).collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(failed()(error)),
        }
    }
}

/// Whether an event is a sign of a fault, of a host, a leader or the training.
fn is_sign(kind: &EventKind, training: JobId) -> bool {
    match kind {
        EventKind::HostHealthChanged { health, .. } => *health != HostHealth::Up,
        EventKind::HostRegistered { .. } | EventKind::LeadershipStarted { .. } => true,
        EventKind::TaskExited { job, exit, .. } => *job == training && exit.code != Some(0),
        EventKind::TaskLost { job, .. } | EventKind::AttemptStopping { job, .. } => {
            *job == training
        }
        _ => false,
    }
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Milliseconds since 1970.
#[expect(
    clippy::disallowed_methods,
    reason = "compared with the wall-clock times in the tasks' records, on the same machine"
)]
fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, whole_ms)
}
