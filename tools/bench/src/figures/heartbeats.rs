//! Cost of the heartbeats of 10,000 workers for the leader, and of reading its metrics.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::ensure;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::cpu;
use crate::fleet::{Fleet, FleetShape};
use crate::options::Bench;
use crate::row::{Goal, Row, Values};
use crate::samples::Samples;
use crate::testbed::{REPLICAS, Shape, Testbed};

const HOSTS: u32 = 10_000;
const HOSTS_QUICK: u32 = 1_000;
const GPUS_PER_HOST: u32 = 8;
const CONNECTIONS: usize = 16;
/// Goal: share of one core, in per cent.
const GOAL_PERCENT: f64 = 25.0;
const TIMEOUT: Duration = Duration::from_secs(120);
/// Pause between two scrapes; Prometheus scrapes every 15 s by default.
const SCRAPE_PAUSE: Duration = Duration::from_secs(1);
const PERCENT: f64 = 100.0;

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let hosts = bench.pick(HOSTS, HOSTS_QUICK);
    let testbed = Testbed::start(bench, Shape::REPLICAS_ONLY).await?;
    let shape = FleetShape {
        hosts,
        gpus_per_host: GPUS_PER_HOST,
        connections: CONNECTIONS,
    };
    let began = Instant::now();
    let fleet = Fleet::start(shape, &testbed.addresses())?;
    fleet.await_welcomed(hosts, TIMEOUT).await?;
    bench.progress(&format!(
        "   {hosts} hosts registered in {:.1} s",
        began.elapsed().as_secs_f64()
    ));
    // Two periods: the load of the registrations is over.
    sleep(Duration::from_secs(10)).await;
    let window = bench.pick(Duration::from_secs(30), Duration::from_secs(5));
    let leader = testbed.leader().await?;
    let mut shares = vec![Samples::default(); REPLICAS];
    let heartbeats = fleet.heartbeats();
    for _ in 0..bench.pick(3, 1) {
        let used = used_while(&testbed, sleep(window)).await?;
        for (samples, used) in shares.iter_mut().zip(used) {
            samples.push(PERCENT * used.as_secs_f64() / window.as_secs_f64());
        }
    }
    let (sent, acknowledged) = (
        fleet.heartbeats().0 - heartbeats.0,
        fleet.heartbeats().1 - heartbeats.1,
    );
    let status = testbed.await_status("any status", |_| true).await?;
    let up = status.hosts.map_or(0, |counts| counts.up);
    ensure!(up == hosts, "only {up} of {hosts} hosts are up");
    let follower = (leader + 1) % REPLICAS;
    let conditions = format!(
        "{hosts} simulated workers, a heartbeat every 5 s each, all up; {sent} heartbeats sent, {acknowledged} \
         acknowledged; {} windows of {} s",
        shares[leader].len(),
        window.as_secs()
    );
    let rows = [
        (leader, "leader", Some(Goal::AtMost(GOAL_PERCENT))),
        (follower, "follower", None),
    ]
    .map(|(index, role, goal)| Row {
        what: format!("heartbeats: processor time of a {role}"),
        conditions: conditions.clone(),
        unit: "% of a core",
        values: Values::runs(&shares[index]),
        goal,
    });
    let scrapes = scrapes(bench, &testbed, leader, hosts).await?;
    drop(fleet);
    testbed.stop()?;
    Ok(rows.into_iter().chain(scrapes).collect())
}

/// Processor time that each replica uses during an operation.
async fn used_while(
    testbed: &Testbed,
    operation: impl Future<Output = ()>,
) -> anyhow::Result<Vec<Duration>> {
    let usage = || testbed.pids().into_iter().map(cpu::used_by);
    let before: Vec<Duration> = usage().collect::<anyhow::Result<_>>()?;
    operation.await;
    let after: Vec<Duration> = usage().collect::<anyhow::Result<_>>()?;
    let pairs = after.into_iter().zip(before);
    Ok(pairs.map(|(after, before)| after - before).collect())
}

/// Reads the leader's metrics once a second, more often than Prometheus does: duration of a scrape, and cost
/// of all of them.
async fn scrapes(
    bench: &Bench,
    testbed: &Testbed,
    leader: usize,
    hosts: u32,
) -> anyhow::Result<[Row; 2]> {
    let count = bench.pick(30, 5);
    let address = testbed.metrics(leader);
    let (mut took, mut bytes) = (Samples::default(), 0);
    let mut failed = None;
    let reading = async {
        for _ in 0..count {
            let began = Instant::now();
            match page(address).await {
                Ok(text) => bytes = text.len(),
                Err(error) => failed = Some(error),
            }
            took.push_ms(began.elapsed());
            sleep(SCRAPE_PAUSE).await;
        }
    };
    let began = Instant::now();
    let used = used_while(testbed, reading).await?[leader];
    let share = PERCENT * used.as_secs_f64() / began.elapsed().as_secs_f64();
    if let Some(error) = failed {
        return Err(error.context("reading the leader's metrics"));
    }
    let conditions = format!(
        "{hosts} simulated workers, all up; {count} scrapes, one a second, of {:.0} KiB each",
        bytes as f64 / 1_024.0
    );
    let mut busy = Samples::default();
    busy.push(share);
    Ok([
        Row {
            what: "a scrape of the leader's metrics".to_owned(),
            conditions: conditions.clone(),
            unit: "ms",
            values: Values::percentiles(&took),
            goal: None,
        },
        Row {
            what: "heartbeats and a scrape a second: processor time of a leader".to_owned(),
            conditions,
            unit: "% of a core",
            values: Values::runs(&busy),
            goal: None,
        },
    ])
}

/// Response of the metrics listener.
async fn page(address: SocketAddr) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    ensure!(answer.contains(" 200 "), "{:.80}", answer);
    Ok(answer)
}
