//! Time from a worker's finding until the worker is notified that the decision about it is committed, among
//! 10,000 workers; and until a gang affected by the finding is placed again as a whole.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use muster_model::ids::JobId;
use muster_proto::v1;
use tokio::time::{Instant, interval, sleep, timeout};

use crate::fleet::{Fleet, FleetShape};
use crate::options::Bench;
use crate::row::{Goal, Row, Values};
use crate::samples::Samples;
use crate::specs;
use crate::testbed::{Shape, Testbed};

const HOSTS: u32 = 10_000;
const HOSTS_QUICK: u32 = 1_000;
const GPUS_PER_HOST: u32 = 8;
const CONNECTIONS: usize = 16;
/// Hosts with a finding, each once and about its first GPU.
const FINDINGS: u32 = 1_000;
const FINDINGS_QUICK: u32 = 50;
/// Pause between two findings.
const PAUSE: Duration = Duration::from_millis(50);
/// Goal for the 99th percentile, in milliseconds.
const GOAL_P99_MS: f64 = 1_000.0;
const GOAL_P50_MS: f64 = 500.0;
/// Affected gangs, one after another, and their tasks: each has a host to itself.
const GANGS: u32 = 20;
const GANGS_QUICK: u32 = 3;
const GANG_TASKS: u32 = 64;
/// Goal until a gang is placed again where there is room, in milliseconds.
const PLACED_AGAIN_GOAL_MS: f64 = 5_000.0;
const TIMEOUT: Duration = Duration::from_secs(120);

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let hosts = bench.pick(HOSTS, HOSTS_QUICK);
    let findings = bench.pick(FINDINGS, FINDINGS_QUICK);
    let testbed = Testbed::start(bench, Shape::REPLICAS_ONLY).await?;
    let shape = FleetShape {
        hosts,
        gpus_per_host: GPUS_PER_HOST,
        connections: CONNECTIONS,
    };
    let mut fleet = Fleet::start(shape, &testbed.addresses())?;
    fleet.await_welcomed(hosts, TIMEOUT).await?;
    // Two periods: the load of the registrations is over.
    sleep(Duration::from_secs(10)).await;
    // Measured first: the findings that follow form one incident, and failures during it wait for its end.
    let again = placed_again(bench, &testbed, &mut fleet, hosts).await?;
    let found = found(&mut fleet, hosts, findings).await?;
    drop(fleet);
    testbed.stop()?;
    Ok(vec![found, again])
}

/// Injects findings into workers, one after another.
async fn found(fleet: &mut Fleet, hosts: u32, findings: u32) -> anyhow::Result<Row> {
    let mut pause = interval(PAUSE);
    let stride = hosts / findings;
    for at in 0..findings {
        pause.tick().await;
        fleet.report_finding(at * stride)?;
    }
    let mut samples = Samples::default();
    for _ in 0..findings {
        samples.push_ms(fleet.await_acknowledged(TIMEOUT).await?);
    }
    let count = samples.len();
    ensure!(
        count == findings as usize,
        "{count} of {findings} were acknowledged"
    );
    Ok(Row {
        what: "finding to its committed block".to_owned(),
        conditions: format!(
            "{hosts} simulated workers with {GPUS_PER_HOST} GPUs, a heartbeat every 5 s each; {findings} of them find \
             an XID 48, one every {} ms; until the worker is notified of the commit",
            PAUSE.as_millis()
        ),
        unit: "ms",
        values: Values::percentiles(&samples),
        goal: Some(Goal::Percentiles {
            p50: GOAL_P50_MS,
            p99: GOAL_P99_MS,
        }),
    })
}

/// Repeatedly breaks a GPU of a gang: the gang ends, and is placed without that GPU.
async fn placed_again(
    bench: &Bench,
    testbed: &Testbed,
    fleet: &mut Fleet,
    hosts: u32,
) -> anyhow::Result<Row> {
    let mut samples = Samples::default();
    for _ in 0..bench.pick(GANGS, GANGS_QUICK) {
        let before = fleet.assigned();
        let spec = specs::gang(GANG_TASKS, GPUS_PER_HOST);
        let job = testbed.client().submit_job(spec).await?.job;
        let tasks = u64::from(GANG_TASKS);
        fleet.await_assigned(before + tasks, TIMEOUT).await?;
        let victim = first_host(testbed, job).await?;
        let began = Instant::now();
        fleet.report_finding(victim)?;
        let again = fleet.await_assigned(before + 2 * tasks, TIMEOUT).await?;
        samples.push_ms(again.duration_since(began));
        fleet.await_acknowledged(TIMEOUT).await?;
        let elsewhere = first_host(testbed, job).await?;
        ensure!(elsewhere != victim, "the gang came back to a broken GPU");
        let client = testbed.client();
        client
            .cancel_job(job, "bench", "it was placed again")
            .await?;
        timeout(TIMEOUT, client.wait_job(job))
            .await
            .context("a gang did not end")??;
    }
    Ok(Row {
        what: "finding to its gang placed again".to_owned(),
        conditions: format!(
            "{hosts} simulated workers with {GPUS_PER_HOST} GPUs, a heartbeat every 5 s each; a gang of {GANG_TASKS} \
             tasks x {GPUS_PER_HOST} GPUs has an XID 48, and there is room; until the last worker has its new task; \
             {} gangs",
            samples.len()
        ),
        unit: "ms",
        values: Values::percentiles(&samples),
        goal: Some(Goal::Percentiles {
            p50: PLACED_AGAIN_GOAL_MS,
            p99: PLACED_AGAIN_GOAL_MS,
        }),
    })
}

/// Number of the worker that has a gang's first task.
async fn first_host(testbed: &Testbed, job: JobId) -> anyhow::Result<u32> {
    let client = testbed.client();
    let detail = client
        .get_job(job, 1, v1::Consistency::Linearizable)
        .await?;
    let attempt = detail.units.into_iter().find_map(|unit| unit.attempt);
    let tasks = attempt.context("the gang has no place")?.tasks;
    let host = &tasks.first().context("an attempt without tasks")?.host;
    let number = host.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    number
        .parse()
        .with_context(|| format!("{host} is not a simulated worker"))
}
