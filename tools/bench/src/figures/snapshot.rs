//! Stall of the apply loop while a snapshot of 100,000 jobs is written.
//! One replica in this process, on real files. A prober proposes one command after another; while the loop is
//! blocked no answer comes, so the longest answer is an upper bound of the longest stall.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use muster_engine::state::State;
use muster_model::command::Command;
use muster_model::ids::{RequestId, RequestKey};
use muster_model::spec::{
    DEFAULT_QUEUE, Execution, JobSpec, Layout, Lifecycle, Resources, RetryPolicy,
    SINGLE_PARTITION_GRACE_MS, STOP_GRACE_MS, Scheduling, TaskGroup,
};
use muster_raft_store::{Config, Handle, Peer};
use tokio::time::{Instant, sleep, timeout};

use crate::options::Bench;
use crate::row::{Goal, Row, Values};
use crate::samples::Samples;

/// Goal for the longest stall, in milliseconds.
const GOAL_MS: f64 = 20.0;
/// Commands per proposal while jobs are loaded.
const BATCH: u64 = 512;
const TIMEOUT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(500);

/// A replica with jobs and a prober.
struct Probed {
    handle: Handle<State>,
    spec: Arc<JobSpec>,
    next_request: u128,
}

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let folder = tempfile::tempdir().context("making a folder for the replica")?;
    let config = Config::new(1, "bench", folder.path());
    let handle = Handle::<State>::open(config).await?;
    // It is its own only member: nothing ever connects to that address.
    handle.initialize(vec![Peer::new(1, "127.0.0.1:1")]).await?;
    let mut leadership = handle.leadership();
    timeout(TIMEOUT, leadership.wait_for(|now| now.is_self))
        .await
        .context("the only replica does not lead")??;
    let mut probed = Probed {
        handle,
        spec: Arc::new(spec()),
        next_request: 1,
    };
    let jobs = bench.pick(100_000, 5_000);
    probed.load(jobs).await?;
    let rows = probed.rows(bench, jobs).await?;
    probed.handle.shutdown().await;
    Ok(rows)
}

impl Probed {
    async fn load(&mut self, jobs: u64) -> anyhow::Result<()> {
        let mut left = jobs;
        while left > 0 {
            let count = left.min(BATCH);
            let commands = (0..count).map(|_| self.submission()).collect();
            for outcome in self.handle.propose(commands).await? {
                outcome.result.context("loading a job")?;
            }
            left -= count;
        }
        Ok(())
    }

    fn submission(&mut self) -> Command {
        self.next_request += 1;
        Command::SubmitJob {
            request: RequestKey::of(RequestId(self.next_request)),
            spec: Arc::clone(&self.spec),
        }
    }

    async fn rows(&mut self, bench: &Bench, jobs: u64) -> anyhow::Result<Vec<Row>> {
        let (mut longest, mut took, mut quiet) =
            (Samples::default(), Samples::default(), Samples::default());
        for _ in 0..bench.pick(7, 2) {
            let (wait, duration) = self.probe_snapshot().await?;
            longest.push_ms(wait);
            took.push_ms(duration);
            let until = Instant::now() + duration;
            quiet.push_ms(self.probe(|_| Instant::now() >= until).await?);
            sleep(PAUSE).await;
        }
        let conditions = format!(
            "{jobs} jobs, one replica, real files; longest of all answers to single proposals meanwhile; {} \
             snapshots, {:.0} ms each; without a snapshot, over the same time, {:.1} ms ({:.1} to {:.1})",
            longest.len(),
            took.median(),
            quiet.median(),
            quiet.min(),
            quiet.max()
        );
        Ok(vec![Row {
            what: "longest stall of the apply loop while a snapshot is written".to_owned(),
            conditions,
            unit: "ms",
            values: Values::runs(&longest),
            goal: Some(Goal::AtMost(GOAL_MS)),
        }])
    }

    /// Longest answer while a snapshot is written, and the duration of the write.
    async fn probe_snapshot(&mut self) -> anyhow::Result<(Duration, Duration)> {
        let applied = self.handle.status().applied_index;
        let began = Instant::now();
        self.handle.trigger_snapshot().await?;
        let longest = self
            .probe(move |handle| handle.status().snapshot_index >= applied)
            .await?;
        Ok((longest, began.elapsed()))
    }

    /// Proposes one command after another until `is_over`.
    async fn probe(
        &mut self,
        is_over: impl Fn(&Handle<State>) -> bool,
    ) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let mut longest = Duration::ZERO;
        loop {
            let proposed = Instant::now();
            let command = self.submission();
            self.handle.propose(vec![command]).await?;
            longest = longest.max(proposed.elapsed());
            if is_over(&self.handle) {
                return Ok(longest);
            }
            ensure!(began.elapsed() < TIMEOUT, "the snapshot is not written");
        }
    }
}

fn spec() -> JobSpec {
    let group = TaskGroup {
        name: "main".to_owned(),
        count: 1,
        resources: Resources {
            gpus: 1,
            ..Resources::default()
        },
        command: vec!["true".to_owned()],
        environment: BTreeMap::new(),
        working_directory: None,
        tasks_per_host_max: None,
        layout: Layout::default(),
        execution: Execution::default(),
    };
    JobSpec {
        name: "bench".to_owned(),
        user: "bench".to_owned(),
        queue: DEFAULT_QUEUE.to_owned(),
        priority: 0,
        gang: false,
        groups: vec![group],
        retry: RetryPolicy::default(),
        partition_grace_ms: SINGLE_PARTITION_GRACE_MS,
        stop_grace_ms: STOP_GRACE_MS,
        labels: BTreeMap::from([("payload".to_owned(), "x".repeat(200))]),
        scheduling: Scheduling::default(),
        lifecycle: Lifecycle::default(),
    }
}
