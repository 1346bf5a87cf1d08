//! Start latency of tasks: one task on an idle cluster, and a gang of 64 GPUs on 8 hosts, on real workers.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use muster_client::{WatchFilter, WatchUpdate};
use muster_model::ids::JobId;
use muster_proto::v1;
use tokio::time::{Instant, sleep, timeout};

use crate::options::Bench;
use crate::row::{Goal, Row, Values};
use crate::samples::Samples;
use crate::testbed::{Shape, Testbed};
use crate::{clock, specs};

const HOSTS: usize = 8;
const GPUS_PER_HOST: u32 = 8;
/// Goal from the acknowledgement to the first instruction, in milliseconds.
const START_GOAL: Goal = Goal::Percentiles {
    p50: 10.0,
    p99: 30.0,
};
/// Goal from the submit of the gang until all its tasks run, in milliseconds.
const GANG_GOAL: Goal = Goal::AtMost(90.0);
/// Goal from the allocation of the gang until all its tasks run, in milliseconds: up to the maximum of a
/// thousand.
const ASSEMBLY_GOAL: Goal = Goal::Percentiles {
    p50: 500.0,
    p99: 1_000.0,
};
const TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(2);
/// Pause between two samples, so that each finds the cluster idle.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let shape = Shape {
        workers: HOSTS,
        gpus_per_host: GPUS_PER_HOST,
    };
    let testbed = Testbed::start(bench, shape).await?;
    let folder = tempfile::tempdir().context("making a folder for the stamps")?;
    let mut rows = vec![single(bench, &testbed, folder.path()).await?];
    let hosts = u32::try_from(HOSTS)?;
    rows.extend(gang(bench, &testbed, hosts, GPUS_PER_HOST).await?);
    rows.extend(gang(bench, &testbed, hosts * GPUS_PER_HOST, 1).await?);
    testbed.stop()?;
    Ok(rows)
}

/// Tasks that write the time into a file, one after another.
async fn single(bench: &Bench, testbed: &Testbed, folder: &Path) -> anyhow::Result<Row> {
    let mut times = Samples::default();
    for number in 0..bench.pick(200, 20) {
        let path = folder.join(format!("stamp-{number}"));
        let script = format!("echo $EPOCHREALTIME > {}", path.display());
        let spec = specs::job(false, 1, 1, None, &["bash", "-c", &script]);
        let submitted = testbed.client().submit_job(spec).await?;
        let acknowledged = clock::wall();
        let started = stamp(&path).await?;
        times.push((started.as_secs_f64() - acknowledged.as_secs_f64()) * 1e3);
        timeout(TIMEOUT, testbed.client().wait_job(submitted.job))
            .await
            .context("a task did not end")??;
        sleep(PAUSE).await;
    }
    Ok(Row {
        what: "acknowledgement of a submit to the first instruction of its task".to_owned(),
        conditions: format!(
            "idle cluster, 3 replicas, {HOSTS} real workers, the task is bash and its start is included; {} tasks",
            times.len()
        ),
        unit: "ms",
        values: Values::percentiles(&times),
        goal: Some(START_GOAL),
    })
}

/// Waits for the time that a task wrote: seconds since the epoch with microseconds, and a line end.
async fn stamp(path: &Path) -> anyhow::Result<Duration> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        if let Some(line) = text.strip_suffix('\n') {
            let seconds: f64 = line.parse().context("the task's stamp")?;
            return Ok(Duration::from_secs_f64(seconds));
        }
        ensure!(Instant::now() < deadline, "a task did not start");
        sleep(POLL_INTERVAL).await;
    }
}

/// Gangs over all GPUs, one after another.
async fn gang(bench: &Bench, testbed: &Testbed, tasks: u32, gpus: u32) -> anyhow::Result<[Row; 2]> {
    let mut times = Samples::default();
    let mut assemblies = Samples::default();
    let tasks_per_host = tasks / u32::try_from(HOSTS)?;
    for _ in 0..bench.pick(100, 3) {
        let mut spec = specs::job(true, tasks, gpus, Some(tasks_per_host), &["sleep", "600"]);
        spec.stop_grace_ms = Some(1_000);
        let began = Instant::now();
        let submitted = testbed.client().submit_job(spec).await?;
        let running = await_running(testbed, submitted.job);
        timeout(TIMEOUT, running)
            .await
            .context("a gang does not run")??;
        times.push_ms(began.elapsed());
        assemblies.push(assembly_ms(testbed, submitted.job).await?);
        testbed
            .client()
            .cancel_job(submitted.job, "bench", "it ran")
            .await?;
        timeout(TIMEOUT, testbed.client().wait_job(submitted.job))
            .await
            .context("a gang did not end")??;
        sleep(PAUSE).await;
    }
    let conditions = format!(
        "{HOSTS} real workers x {GPUS_PER_HOST} GPUs beside 3 replicas on this machine, no member begins before all \
         are \
         prepared; {} gangs",
        times.len()
    );
    let row = |what: &str, times: &Samples, goal| Row {
        what: format!("gang of {tasks} tasks x {gpus} GPUs: {what}"),
        conditions: conditions.clone(),
        unit: "ms",
        values: Values::percentiles(times),
        goal: Some(goal),
    };
    Ok([
        row(
            "submit to all tasks running, seen by a watching client",
            &times,
            GANG_GOAL,
        ),
        row(
            "allocation to all tasks running, by the log's stamps",
            &assemblies,
            ASSEMBLY_GOAL,
        ),
    ])
}

/// Milliseconds from the placement of a job's attempt until all its tasks ran. They started together.
async fn assembly_ms(testbed: &Testbed, job: JobId) -> anyhow::Result<f64> {
    let detail = testbed
        .client()
        .get_job(job, 1, v1::Consistency::Linearizable)
        .await?;
    let mut attempts = detail.units.into_iter().filter_map(|unit| unit.attempt);
    let attempt = attempts.next().context("the gang has no attempt")?;
    let running_at_ms = attempt.running_at_ms.context("the gang does not run")?;
    let released = attempt.barrier.and_then(|barrier| barrier.released_at_ms);
    ensure!(released.is_some(), "the gang began one by one");
    let assembly = Duration::from_millis(running_at_ms.saturating_sub(attempt.placed_at_ms));
    Ok(assembly.as_secs_f64() * 1e3)
}

/// Watches until the job's attempt runs as a whole.
async fn await_running(testbed: &Testbed, job: JobId) -> anyhow::Result<()> {
    let filter = WatchFilter {
        jobs: vec![job],
        kinds: vec![v1::EventKind::AttemptRunning],
    };
    // A job's id is the revision of its submission.
    let from = muster_model::ids::Revision(job.get());
    let mut watch = testbed.client().watch(Some(from), filter);
    loop {
        if let WatchUpdate::Events { .. } = watch.next().await? {
            return Ok(());
        }
    }
}
