//! Demo stage: the cluster, its client, and the operations of the demo on them.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use muster_client::ClientError;
use muster_model::event::EventKind;
use muster_model::ids::JobId;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::cluster::observer::{EventLog, lock};
use crate::cluster::testbed::Testbed;
use crate::cluster::timeline::{LineKind, Timeline};
use crate::cluster::{ClusterOptions, real_gpus};
use crate::demo::options::{DemoOptions, FINISH_TIMEOUT, RANKS, TRAINING};
use crate::demo::scoreboard::{FaultRecord, Scoreboard};
use crate::demo::{DemoError, jobs, stream};
use crate::workload::training::{read_digest, train_undisturbed};
use crate::workload::{Pace, PhillyGenerator, TraceJob, read_jobs};

/// Jobs at the beginning of the trace that are skipped: the cluster was being filled then.
const TRACE_JOBS_SKIPPED: usize = 1_000;
/// Duration of the stream: as long as the faults.
const STREAM_SPAN: std::time::Duration = std::time::Duration::from_secs(40);
/// Seed of the generated stream.
const STREAM_SEED: u64 = 2_017;
/// Interval of the progress lines.
const PROGRESS: std::time::Duration = std::time::Duration::from_secs(5);
/// Interval between polls of a condition without an event.
const POLL: std::time::Duration = std::time::Duration::from_millis(50);

/// State of the running demo.
pub(super) struct Stage {
    pub(super) options: DemoOptions,
    pub(super) testbed: Testbed,
    pub(super) training: JobId,
    /// Measurements, and the jobs that were acknowledged.
    board: Arc<Mutex<Scoreboard>>,
    progress: JoinHandle<()>,
}

impl Stage {
    /// Starts the cluster.
    pub(super) async fn set(options: DemoOptions, timeline: Timeline) -> Result<Self, DemoError> {
        let mut shape = ClusterOptions::small(options.binary.clone());
        shape.keep = options.keep;
        let real_gpus = real_gpus();
        shape.real_gpus = real_gpus > 0;
        timeline.print_line(LineKind::Stage, &describe(&shape, real_gpus));
        let testbed = Testbed::start(shape, timeline).await?;
        let board = Arc::new(Mutex::new(Scoreboard::default()));
        let events = Arc::clone(&testbed.events);
        let progress = tokio::spawn(report_progress(events, Arc::clone(&board), timeline));
        Ok(Self {
            options,
            testbed,
            training: JobId(0),
            board,
            progress,
        })
    }

    pub(super) fn print_line(&self, kind: LineKind, text: &str) {
        self.testbed.print_line(kind, text);
    }

    /// Current counts.
    pub(super) fn board(&self) -> Scoreboard {
        counted(&self.board, &self.testbed.events)
    }

    /// Adds the measurements of a fault.
    pub(super) fn record(&self, fault: FaultRecord) {
        lock(&self.board).faults.push(fault);
    }

    /// Counts an acknowledged job.
    pub(super) fn acknowledge(&self, job: JobId) {
        lock(&self.board).acknowledged(job);
    }

    /// Trains without a scheduler, for the comparison at the end.
    pub(super) async fn train_undisturbed(&self) -> Result<String, DemoError> {
        let began = Instant::now();
        self.print_line(
            LineKind::Stage,
            "training once undisturbed, without a scheduler, for comparison",
        );
        let folder = self.testbed.cluster.folder().join("undisturbed");
        let digest = train_undisturbed(&TRAINING, RANKS, &self.options.trainer, &folder).await?;
        self.print_line(
            LineKind::Training,
            &format!(
                "undisturbed run: weights {digest} after {:.1} s at full speed",
                began.elapsed().as_secs_f64()
            ),
        );
        Ok(digest)
    }

    /// Waits until there is a leader and every worker is registered.
    pub(super) async fn await_cluster(&self) -> Result<(), DemoError> {
        self.testbed.cluster.await_ready().await?;
        let workers = self.testbed.cluster.workers().len();
        self.print_line(
            LineKind::Recovery,
            &format!("a leader is elected, {workers} workers are registered"),
        );
        Ok(())
    }

    fn report_path(&self) -> PathBuf {
        self.testbed
            .cluster
            .shared_folder()
            .join("training-report.json")
    }

    fn ledger(&self) -> PathBuf {
        self.testbed.cluster.shared_folder().join("gpu-ledger")
    }

    /// Submits the training and waits for its first checkpoint.
    pub(super) async fn start_training(&mut self) -> Result<(), DemoError> {
        fs::create_dir_all(self.ledger()).map_err(|error| DemoError::Broken(error.to_string()))?;
        let spec = jobs::training(&self.options.trainer, &self.report_path(), &self.ledger());
        let job = self.testbed.client.submit_job(spec).await?.job;
        self.training = job;
        self.testbed.events.follow(job);
        self.acknowledge(job);
        self.print_line(
            LineKind::Stage,
            &format!("job {job}: a training of 4 ranks, 1 GPU each"),
        );
        let is_checkpoint =
            |kind: &EventKind| matches!(kind, EventKind::CheckpointCommitted { .. });
        let what = "the first checkpoint";
        let committed = self.testbed.wait_for_job(what, 0, job, is_checkpoint);
        committed.await?;
        Ok(())
    }

    /// Starts the stream of small jobs.
    pub(super) fn start_stream(&self) -> Result<JoinHandle<Result<(), ClientError>>, DemoError> {
        let count = self.options.jobs;
        let (trace, origin): (Vec<TraceJob>, _) = match &self.options.trace {
            Some(path) => (
                read_jobs(path, TRACE_JOBS_SKIPPED, count)?,
                "of the Philly trace",
            ),
            None => {
                let generated = PhillyGenerator::new(STREAM_SEED).take(count).collect();
                (generated, "drawn from Philly's published distribution")
            }
        };
        let pace = Pace::within(&trace, STREAM_SPAN);
        self.print_line(
            LineKind::Stage,
            &format!(
                "replaying {count} jobs {origin}, at {:.0} times their speed",
                pace.speed_up()
            ),
        );
        let ledger = self.ledger();
        let specs = trace
            .iter()
            .map(|job| {
                let spec = jobs::stand_in(job, pace.run_for(job), &self.options.trainer, &ledger);
                (pace.submit_after(job), spec)
            })
            .collect();
        let board = Arc::clone(&self.board);
        let submitted = stream::submit_all(self.testbed.client.clone(), board, specs);
        Ok(tokio::spawn(submitted))
    }

    /// Waits until every acknowledged job has ended; returns the digest of the training's weights.
    pub(super) async fn await_finish(&self) -> Result<String, DemoError> {
        self.print_line(
            LineKind::Stage,
            "no more faults; waiting for all jobs to end",
        );
        let deadline = Instant::now() + FINISH_TIMEOUT;
        while !self.board().missing().is_empty() && Instant::now() < deadline {
            tokio::time::sleep(POLL).await;
        }
        self.progress.abort();
        let missing = self.board().missing();
        if !missing.is_empty() {
            self.print_line(
                LineKind::Fault,
                &format!("jobs without success: {missing:?}"),
            );
        }
        Ok(read_digest(&self.report_path())?)
    }

    /// Compares the weights and reads the tasks' own record of their GPUs.
    pub(super) fn compare_results(&self, faulty: String, calm: String) -> Result<(), DemoError> {
        let ledger = self.ledger();
        let locks = fs::read_dir(&ledger).map_err(|error| DemoError::Broken(error.to_string()))?;
        if locks.count() == 0 {
            return Err(DemoError::Broken("no task locked a GPU".to_owned()));
        }
        let conflicts = fs::read_to_string(ledger.join("conflicts")).unwrap_or_default();
        let mut board = lock(&self.board);
        board.double_allocations = conflicts.lines().map(str::to_owned).collect();
        board.digests = Some((faulty, calm));
        Ok(())
    }

    /// Ends everything and checks that nothing is left.
    pub(super) async fn tear_down(self) -> Result<(), DemoError> {
        self.progress.abort();
        Ok(self.testbed.tear_down().await?)
    }
}

/// The measurements so far, with the counts from the events.
fn counted(board: &Mutex<Scoreboard>, events: &EventLog) -> Scoreboard {
    let mut counted = lock(board).clone();
    events.visit(|event| counted.observe(event));
    counted
}

/// Reports the progress of the jobs every few seconds, until aborted.
async fn report_progress(events: Arc<EventLog>, board: Arc<Mutex<Scoreboard>>, timeline: Timeline) {
    let mut ticks = tokio::time::interval(PROGRESS);
    loop {
        ticks.tick().await;
        if let Some(progress) = counted(&board, &events).progress() {
            timeline.print_line(LineKind::Cluster, &progress);
        }
    }
}

fn describe(shape: &ClusterOptions, real_gpus: usize) -> String {
    let ClusterOptions {
        replicas,
        workers,
        gpus_per_host,
        ..
    } = shape;
    let real = match real_gpus {
        0 => String::new(),
        count => format!(" (node01: the {count} real GPUs of this machine)"),
    };
    format!(
        "starting {replicas} replicas and {workers} workers with {gpus_per_host} simulated GPUs \
         each{real}, as processes on loopback"
    )
}
