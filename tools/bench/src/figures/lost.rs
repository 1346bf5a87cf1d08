//! Acknowledged submits that are missing after replicas were killed right after an answer.
//! Clients submit continuously. The moment one of them has its answer, the leader (or every replica) gets
//! SIGKILL. Afterwards every acknowledged job must exist.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use muster_client::{Client, ClientConfig};
use muster_proto::v1;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::options::Bench;
use crate::row::{Goal, Row, Values};
use crate::specs;
use crate::testbed::{REPLICAS, Shape, Testbed};

/// Clients that submit continuously.
const CLIENTS: usize = 16;
/// Longest wait for an answer before a kill.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Difference between the pauses of two trials; the pauses cycle, so that kills hit different phases of
/// periodic work in a replica.
const PAUSE_STEP: Duration = Duration::from_millis(37);
const PAUSES: u32 = 11;

/// Killed replicas.
#[derive(Clone, Copy)]
enum Victims {
    Leader,
    All,
}

/// Acknowledged jobs, recorded by all clients.
#[derive(Default)]
struct Acknowledged {
    jobs: Mutex<BTreeSet<u64>>,
    answered: Notify,
}

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let mut testbed = Testbed::start(bench, Shape::REPLICAS_ONLY).await?;
    let acknowledged = Arc::new(Acknowledged::default());
    let mut rows = Vec::new();
    for victims in [Victims::Leader, Victims::All] {
        rows.push(trials(bench, &mut testbed, &acknowledged, victims).await?);
    }
    testbed.stop()?;
    Ok(rows)
}

async fn trials(
    bench: &Bench,
    testbed: &mut Testbed,
    acknowledged: &Arc<Acknowledged>,
    victims: Victims,
) -> anyhow::Result<Row> {
    let trials = bench.pick(50, 5);
    let before = acknowledged.count();
    let mut clients = start_clients(testbed, acknowledged).await?;
    for trial in 0..trials {
        testbed.await_caught_up().await?;
        sleep(PAUSE_STEP * (trial % PAUSES)).await;
        kill_after_answer(testbed, acknowledged, victims).await?;
        bench.progress(&format!(
            "   {}, trial {}: {} acknowledged so far",
            victims.name(),
            trial + 1,
            acknowledged.count()
        ));
    }
    clients.abort_all();
    while clients.join_next().await.is_some() {}
    testbed.await_caught_up().await?;
    let known = all_jobs(testbed.client()).await?;
    let missing = acknowledged.missing_in(&known);
    Ok(Row {
        what: format!(
            "acknowledged submits missing after kill -9 of {} right after an answer",
            victims.name()
        ),
        conditions: format!(
            "{trials} trials, {CLIENTS} clients submit without pause; {} acknowledged",
            acknowledged.count() - before
        ),
        unit: "jobs",
        values: Values::One(missing as f64),
        goal: Some(Goal::AtMost(0.0)),
    })
}

/// Kills at the moment of an answer, then restarts the killed replicas.
async fn kill_after_answer(
    testbed: &mut Testbed,
    acknowledged: &Acknowledged,
    victims: Victims,
) -> anyhow::Result<()> {
    let leader = testbed.leader().await?;
    let dead: Vec<usize> = match victims {
        Victims::Leader => vec![leader],
        Victims::All => (0..REPLICAS).collect(),
    };
    timeout(ANSWER_TIMEOUT, acknowledged.answered.notified())
        .await
        .context("no submit was answered for half a minute")?;
    for index in &dead {
        testbed.kill(*index)?;
    }
    for index in &dead {
        testbed.await_end(*index)?;
    }
    for index in &dead {
        testbed.restart(*index)?;
    }
    Ok(())
}

/// Starts clients that continue through every kill: a failed submit is replaced by a new one.
async fn start_clients(
    testbed: &Testbed,
    acknowledged: &Arc<Acknowledged>,
) -> anyhow::Result<JoinSet<()>> {
    let config = ClientConfig {
        per_try_deadline: Duration::from_secs(1),
        connect_deadline: Duration::from_millis(200),
        backoff_max: Duration::from_millis(50),
        ..ClientConfig::new(testbed.addresses())
    };
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let client = Client::connect(config.clone()).await?;
        let acknowledged = Arc::clone(acknowledged);
        clients.spawn(async move {
            loop {
                // Unacknowledged submits may be missing.
                if let Ok(submitted) = client.submit_job(specs::single()).await {
                    acknowledged.record(submitted.job.get());
                }
            }
        });
    }
    Ok(clients)
}

async fn all_jobs(client: &Client) -> anyhow::Result<BTreeSet<u64>> {
    let request = v1::ListJobsRequest {
        consistency: v1::Consistency::Linearizable.into(),
        ..v1::ListJobsRequest::default()
    };
    let (_, jobs) = client.list_jobs(request, usize::MAX).await?;
    Ok(jobs.into_iter().map(|job| job.id).collect())
}

impl Acknowledged {
    fn record(&self, job: u64) {
        self.lock().insert(job);
        self.answered.notify_waiters();
    }

    fn count(&self) -> usize {
        self.lock().len()
    }

    fn missing_in(&self, known: &BTreeSet<u64>) -> usize {
        self.lock().difference(known).count()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<u64>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Victims {
    const fn name(self) -> &'static str {
        match self {
            Self::Leader => "the leader",
            Self::All => "all replicas",
        }
    }
}
