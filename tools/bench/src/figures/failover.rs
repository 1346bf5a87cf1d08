//! Time from the death of the leader (`kill -9`) to the next acknowledged write.

use std::time::Duration;

use muster_client::{Client, ClientConfig};
use tokio::time::Instant;

use crate::fleet::{Fleet, FleetShape};
use crate::options::Bench;
use crate::row::{Goal, Row, Values};
use crate::samples::Samples;
use crate::specs;
use crate::testbed::{Shape, Testbed};

/// Goal, in milliseconds.
const GOAL: Goal = Goal::Percentiles {
    p50: 500.0,
    p99: 1_000.0,
};
/// Bucket width of the published histogram, in milliseconds.
const HISTOGRAM_STEP_MS: f64 = 100.0;
/// One small host, full, so that loaded jobs wait as on a busy cluster.
const FLEET: FleetShape = FleetShape {
    hosts: 1,
    gpus_per_host: 8,
    connections: 1,
};
const FLEET_TIMEOUT: Duration = Duration::from_secs(30);

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let mut testbed = Testbed::start(bench, Shape::REPLICAS_ONLY).await?;
    let fleet = Fleet::start(FLEET, &testbed.addresses())?;
    fleet.await_welcomed(FLEET.hosts, FLEET_TIMEOUT).await?;
    testbed.fill(FLEET.hosts * FLEET.gpus_per_host).await?;
    let mut rows = vec![kills(bench, &mut testbed, "idle").await?];
    let jobs = bench.pick(100_000, 5_000);
    bench.progress(&format!("   loading {jobs} jobs"));
    testbed.load_jobs(jobs, specs::single()).await?;
    rows.push(kills(bench, &mut testbed, &format!("{jobs} live jobs")).await?);
    drop(fleet);
    testbed.stop()?;
    Ok(rows)
}

async fn kills(bench: &Bench, testbed: &mut Testbed, conditions: &str) -> anyhow::Result<Row> {
    let mut times = Samples::default();
    for round in 1..=bench.pick(50, 5) {
        testbed.await_caught_up().await?;
        let took = kill_leader(testbed).await?;
        times.push_ms(took);
        bench.progress(&format!(
            "   {conditions}, kill {round}: {:.0} ms",
            took.as_secs_f64() * 1e3
        ));
    }
    Ok(Row {
        what: "kill -9 of the leader to the next acknowledged submit".to_owned(),
        conditions: format!(
            "{conditions}; {} kills; histogram in ms: {}",
            times.len(),
            times.histogram(HISTOGRAM_STEP_MS)
        ),
        unit: "ms",
        values: Values::percentiles(&times),
        goal: Some(GOAL),
    })
}

/// Kills the leader while a client is connected to it, and starts it again.
async fn kill_leader(testbed: &mut Testbed) -> anyhow::Result<Duration> {
    let leader = testbed.leader().await?;
    let client = client_with_short_deadlines(testbed).await?;
    client.submit_job(specs::single()).await?;
    let began = Instant::now();
    testbed.kill(leader)?;
    // Also covers a write that the dying leader had committed and only the retry finds.
    client.submit_job(specs::single()).await?;
    let took = began.elapsed();
    testbed.await_end(leader)?;
    testbed.restart(leader)?;
    Ok(took)
}

/// A client with short tries, each safe to repeat under its request id.
async fn client_with_short_deadlines(testbed: &Testbed) -> anyhow::Result<Client> {
    let config = ClientConfig {
        per_try_deadline: Duration::from_millis(500),
        connect_deadline: Duration::from_millis(100),
        backoff_base: Duration::from_millis(5),
        backoff_max: Duration::from_millis(20),
        ..ClientConfig::new(testbed.addresses())
    };
    Ok(Client::connect(config).await?)
}
