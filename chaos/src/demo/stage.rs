//! Demo stage: the cluster, its client, and the operations of the demo on them.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use muster_client::{Client, ClientConfig, ClientError};
use muster_model::event::EventKind;
use muster_model::ids::JobId;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::cluster::{ClusterOptions, LocalCluster, processes_of, real_gpus};
use crate::demo::observer::{Observed, lock, observe};
use crate::demo::options::{DemoOptions, FINISH_PATIENCE, PATIENCE, RANKS, TRAINING};
use crate::demo::scoreboard::Scoreboard;
use crate::demo::timeline::{Timeline, Voice};
use crate::demo::{DemoError, jobs, reference, stream};
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
    pub(super) cluster: LocalCluster,
    pub(super) client: Client,
    pub(super) observed: Arc<Observed>,
    pub(super) timeline: Timeline,
    pub(super) training: JobId,
    watcher: JoinHandle<()>,
    progress: JoinHandle<()>,
}

impl Stage {
    /// Starts the cluster.
    pub(super) async fn set(options: DemoOptions, timeline: Timeline) -> Result<Self, DemoError> {
        let mut shape = ClusterOptions::small(options.binary.clone());
        shape.keep = options.keep;
        let real_gpus = real_gpus();
        shape.real_gpus = real_gpus > 0;
        timeline.say(Voice::Stage, &describe(&shape, real_gpus));
        let cluster = LocalCluster::start(shape)?;
        timeline.say(
            Voice::Stage,
            &format!("data and logs: {}", cluster.folder().display()),
        );
        let config = ClientConfig {
            discover: false,
            ..ClientConfig::new(cluster.addresses())
        };
        let client = Client::connect(config).await?;
        let observed = Arc::new(Observed::default());
        let watcher = observe(client.clone(), Arc::clone(&observed), timeline);
        let progress = tokio::spawn(report_progress(Arc::clone(&observed), timeline));
        let training = JobId(0);
        Ok(Self {
            options,
            cluster,
            client,
            observed,
            timeline,
            training,
            watcher,
            progress,
        })
    }

    pub(super) fn say(&self, voice: Voice, text: &str) {
        self.timeline.say(voice, text);
    }

    /// Current counts.
    pub(super) fn board(&self) -> Scoreboard {
        lock(&self.observed.board).clone()
    }

    /// Counts an acknowledged job.
    pub(super) fn acknowledge(&self, job: JobId) {
        lock(&self.observed.board).acknowledged(job);
    }

    /// Trains without a scheduler, for the comparison at the end.
    pub(super) async fn train_undisturbed(&self) -> Result<String, DemoError> {
        let began = Instant::now();
        self.say(
            Voice::Stage,
            "training once undisturbed, without a scheduler, for comparison",
        );
        let folder = self.cluster.folder().join("undisturbed");
        let digest =
            reference::train_undisturbed(&TRAINING, RANKS, &self.options.trainer, &folder).await?;
        self.say(
            Voice::Training,
            &format!(
                "undisturbed run: weights {digest} after {:.1} s at full speed",
                began.elapsed().as_secs_f64()
            ),
        );
        Ok(digest)
    }

    /// Waits until there is a leader and every worker is registered.
    pub(super) async fn await_cluster(&self) -> Result<(), DemoError> {
        crate::dev::await_ready(&self.cluster).await?;
        let workers = self.cluster.workers().len();
        self.say(
            Voice::Recovery,
            &format!("a leader is elected, {workers} workers are registered"),
        );
        Ok(())
    }

    fn report_path(&self) -> PathBuf {
        self.cluster.shared_folder().join("training-report.json")
    }

    fn ledger(&self) -> PathBuf {
        self.cluster.shared_folder().join("gpu-ledger")
    }

    /// Submits the training and waits for its first checkpoint.
    pub(super) async fn start_training(&mut self) -> Result<(), DemoError> {
        fs::create_dir_all(self.ledger()).map_err(|error| DemoError::Broken(error.to_string()))?;
        let spec = jobs::training(&self.options.trainer, &self.report_path(), &self.ledger());
        let job = self.client.submit_job(spec).await?.job;
        self.training = job;
        self.observed.follow(job);
        self.acknowledge(job);
        self.say(
            Voice::Stage,
            &format!("job {job}: a training of 4 ranks, 1 GPU each"),
        );
        let committed = |event: &muster_model::event::Event| {
            matches!(&event.kind,
                EventKind::CheckpointCommitted { job: of, .. } if *of == job)
        };
        self.observed
            .wait_for("the first checkpoint", 0, PATIENCE, committed)
            .await?;
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
        self.say(
            Voice::Stage,
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
        let submitted = stream::submit_all(self.client.clone(), Arc::clone(&self.observed), specs);
        Ok(tokio::spawn(submitted))
    }

    /// Waits until every acknowledged job has ended; returns the digest of the training's weights.
    pub(super) async fn await_finish(&self) -> Result<String, DemoError> {
        self.say(Voice::Stage, "no more faults; waiting for all jobs to end");
        let deadline = Instant::now() + FINISH_PATIENCE;
        while !self.board().missing().is_empty() && Instant::now() < deadline {
            tokio::time::sleep(POLL).await;
        }
        self.progress.abort();
        let missing = self.board().missing();
        if !missing.is_empty() {
            self.say(Voice::Fault, &format!("jobs without success: {missing:?}"));
        }
        Ok(reference::read_digest(&self.report_path())?)
    }

    /// Compares the weights and reads the tasks' own record of their GPUs.
    pub(super) fn settle_accounts(&self, faulty: String, calm: String) -> Result<(), DemoError> {
        let ledger = self.ledger();
        let locks = fs::read_dir(&ledger).map_err(|error| DemoError::Broken(error.to_string()))?;
        if locks.count() == 0 {
            return Err(DemoError::Broken("no task locked a GPU".to_owned()));
        }
        let conflicts = fs::read_to_string(ledger.join("conflicts")).unwrap_or_default();
        let mut board = lock(&self.observed.board);
        board.double_allocations = conflicts.lines().map(str::to_owned).collect();
        board.digests = Some((faulty, calm));
        Ok(())
    }

    /// Ends everything and checks that nothing is left.
    pub(super) async fn strike(self) -> Result<(), DemoError> {
        self.watcher.abort();
        self.progress.abort();
        let folder = self.cluster.folder().to_owned();
        let cluster = self.cluster;
        tokio::task::spawn_blocking(move || cluster.stop())
            .await
            .map_err(|_| DemoError::Broken("stopping the cluster panicked".to_owned()))??;
        let left = processes_of(&folder);
        if !left.is_empty() {
            return Err(DemoError::Broken(format!(
                "processes are still running: {left:?}"
            )));
        }
        if self.options.keep {
            let kept = format!("kept for inspection: {}", folder.display());
            self.timeline.say(Voice::Stage, &kept);
        } else if folder.exists() {
            let left = format!("{} is left behind", folder.display());
            return Err(DemoError::Broken(left));
        }
        Ok(())
    }
}

/// Reports the progress of the jobs every few seconds, until aborted.
async fn report_progress(observed: Arc<Observed>, timeline: Timeline) {
    let mut ticks = tokio::time::interval(PROGRESS);
    loop {
        ticks.tick().await;
        let progress = lock(&observed.board).progress();
        if let Some(progress) = progress {
            timeline.say(Voice::Cluster, &progress);
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
