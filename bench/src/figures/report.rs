//! From a worker's finding until it hears that the decision about it is committed, among 10,000 workers.

use std::time::Duration;

use anyhow::ensure;
use tokio::time::{interval, sleep};

use crate::fleet::{Fleet, FleetShape};
use crate::options::Bench;
use crate::row::{Goal, Row, Values};
use crate::samples::Samples;
use crate::testbed::{Shape, Testbed};

const HOSTS: u32 = 10_000;
const HOSTS_QUICK: u32 = 1_000;
const GPUS_PER_HOST: u32 = 8;
const CONNECTIONS: usize = 16;
/// Hosts that find something, each once and about its first GPU.
const FINDINGS: u32 = 1_000;
const FINDINGS_QUICK: u32 = 50;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(50);
/// Wanted for 99 of 100, in milliseconds.
const WANTED_P99_MS: f64 = 1_000.0;
const WANTED_P50_MS: f64 = 500.0;
const PATIENCE: Duration = Duration::from_secs(120);

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
    fleet.await_welcomed(hosts, PATIENCE).await?;
    // Two periods: the registrations' echo is over.
    sleep(Duration::from_secs(10)).await;
    let mut pause = interval(PAUSE);
    let stride = hosts / findings;
    for at in 0..findings {
        pause.tick().await;
        fleet.find(at * stride)?;
    }
    let mut samples = Samples::default();
    for _ in 0..findings {
        samples.push_ms(fleet.await_heard(PATIENCE).await?);
    }
    let count = samples.len();
    ensure!(
        count == findings as usize,
        "{count} of {findings} were heard"
    );
    let row = Row {
        what: "finding to its committed block".to_owned(),
        conditions: format!(
            "{hosts} simulated workers with {GPUS_PER_HOST} GPUs, a beat every 5 s each; {findings} of them find an XID 48, one every {} ms; until the worker hears of the commit",
            PAUSE.as_millis()
        ),
        unit: "ms",
        values: Values::percentiles(&samples),
        goal: Some(Goal::Percentiles {
            p50: WANTED_P50_MS,
            p99: WANTED_P99_MS,
        }),
    };
    drop(fleet);
    testbed.stop()?;
    Ok(vec![row])
}
