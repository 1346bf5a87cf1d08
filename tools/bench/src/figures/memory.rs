//! Memory of a replica with 100,000 waiting jobs, and recovery time of replicas after `kill -9`.

use std::time::Duration;

use muster_client::Client;
use muster_model::ids::Revision;
use muster_proto::v1;
use tokio::time::{Instant, sleep, timeout};

use crate::fleet::{Fleet, FleetShape};
use crate::options::Bench;
use crate::row::{Goal, Row, Values};
use crate::samples::Samples;
use crate::testbed::{REPLICAS, Shape, Testbed};
use crate::{cpu, specs};

/// Goal for the memory of 100,000 jobs, in MiB.
const MEMORY_GOAL_MIB: f64 = 300.0;
/// Goal for the recovery time, in seconds.
const RESTART_GOAL_S: f64 = 2.0;
const FLEET: FleetShape = FleetShape {
    hosts: 1,
    gpus_per_host: 8,
    connections: 1,
};
const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
/// Timeout of one try against a replica that is not up yet.
const TRY: Duration = Duration::from_millis(500);

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let mut testbed = Testbed::start(bench, Shape::REPLICAS_ONLY).await?;
    let fleet = Fleet::start(FLEET, &testbed.addresses())?;
    fleet.await_welcomed(FLEET.hosts, TIMEOUT).await?;
    testbed.fill(FLEET.hosts * FLEET.gpus_per_host).await?;
    let before = memory(&testbed)?;
    let jobs = bench.pick(100_000, 5_000);
    bench.progress(&format!("   loading {jobs} jobs"));
    testbed.load_jobs(jobs, specs::single()).await?;
    testbed.await_caught_up().await?;
    let after = memory(&testbed)?;
    let grown: Samples = after
        .iter()
        .zip(&before)
        .map(|(after, before)| after - before)
        .collect();
    let shown: Vec<String> = after.iter().map(|mib| format!("{mib:.0}")).collect();
    let mut rows = vec![Row {
        what: "memory that a replica grew by".to_owned(),
        conditions: format!(
            "{jobs} waiting jobs of one task, submitted one by one; anonymous resident memory, in all {} MiB",
            shown.join(", ")
        ),
        unit: "MiB",
        values: Values::runs(&grown),
        goal: Some(Goal::AtMost(MEMORY_GOAL_MIB)),
    }];
    rows.push(restarts(bench, &mut testbed, jobs, false).await?);
    rows.push(restarted_memory(&testbed, jobs)?);
    rows.push(restarts(bench, &mut testbed, jobs, true).await?);
    drop(fleet);
    testbed.stop()?;
    Ok(rows)
}

fn memory(testbed: &Testbed) -> anyhow::Result<Vec<f64>> {
    testbed.pids().into_iter().map(cpu::memory_mib).collect()
}

/// Memory of a replica that has only read the state, instead of processing the jobs one by one.
fn restarted_memory(testbed: &Testbed, jobs: u64) -> anyhow::Result<Row> {
    let smallest = memory(testbed)?.into_iter().fold(f64::NAN, f64::min);
    Ok(Row {
        what: "whole memory of a replica after a restart".to_owned(),
        conditions: format!("{jobs} waiting jobs; the smallest of the {REPLICAS} replicas"),
        unit: "MiB",
        values: Values::One(smallest),
        goal: None,
    })
}

/// Kills followers one after another, or the whole group, and times their recovery.
async fn restarts(
    bench: &Bench,
    testbed: &mut Testbed,
    jobs: u64,
    whole_group: bool,
) -> anyhow::Result<Row> {
    let mut times = Samples::default();
    for _ in 0..bench.pick(5, 1) {
        testbed.await_caught_up().await?;
        let took = if whole_group {
            restart_group(testbed).await?
        } else {
            restart_follower(testbed).await?
        };
        times.push(took.as_secs_f64());
    }
    let what = if whole_group {
        "restart of all replicas at once: start to the next acknowledged submit"
    } else {
        "restart of a follower: start until it has caught up"
    };
    Ok(Row {
        what: what.to_owned(),
        conditions: format!("{jobs} waiting jobs; after kill -9; {} runs", times.len()),
        unit: "s",
        values: Values::runs(&times),
        goal: Some(Goal::AtMost(RESTART_GOAL_S)),
    })
}

async fn restart_follower(testbed: &mut Testbed) -> anyhow::Result<Duration> {
    let follower = (testbed.leader().await? + 1) % REPLICAS;
    testbed.kill(follower)?;
    testbed.await_end(follower)?;
    let newest = testbed.client().submit_job(specs::single()).await?.revision;
    let client = testbed.client_of(follower).await?;
    let began = Instant::now();
    testbed.restart(follower)?;
    timeout(TIMEOUT, await_revision(&client, newest)).await?;
    Ok(began.elapsed())
}

async fn await_revision(client: &Client, wanted: Revision) {
    loop {
        // Until the replica listens every try fails, which is being timed.
        let answer = timeout(TRY, client.status(v1::Consistency::Stale)).await;
        if let Ok(Ok(status)) = answer
            && status.revision >= wanted.get()
        {
            return;
        }
        sleep(POLL_INTERVAL).await;
    }
}

async fn restart_group(testbed: &mut Testbed) -> anyhow::Result<Duration> {
    for index in 0..REPLICAS {
        testbed.kill(index)?;
    }
    for index in 0..REPLICAS {
        testbed.await_end(index)?;
    }
    let began = Instant::now();
    for index in 0..REPLICAS {
        testbed.restart(index)?;
    }
    testbed.client().submit_job(specs::single()).await?;
    Ok(began.elapsed())
}
