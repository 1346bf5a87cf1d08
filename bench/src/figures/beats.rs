//! What the heartbeats of 10,000 workers cost the leader.

use std::time::Duration;

use anyhow::ensure;
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
/// Wanted share of one core, in per cent.
const WANTED_PERCENT: f64 = 25.0;
const PATIENCE: Duration = Duration::from_secs(120);
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
    fleet.await_welcomed(hosts, PATIENCE).await?;
    bench.say(&format!(
        "   {hosts} hosts registered in {:.1} s",
        began.elapsed().as_secs_f64()
    ));
    // Two periods: the registrations' echo is over.
    sleep(Duration::from_secs(10)).await;
    let window = bench.pick(Duration::from_secs(30), Duration::from_secs(5));
    let leader = testbed.leader().await?;
    let mut shares = vec![Samples::default(); REPLICAS];
    let beats = fleet.beats();
    for _ in 0..bench.pick(3, 1) {
        let before = usage(&testbed)?;
        sleep(window).await;
        for ((samples, before), after) in shares.iter_mut().zip(before).zip(usage(&testbed)?) {
            let used = (after - before).as_secs_f64();
            samples.push(PERCENT * used / window.as_secs_f64());
        }
    }
    let (sent, acknowledged) = (fleet.beats().0 - beats.0, fleet.beats().1 - beats.1);
    let status = testbed.await_status("any status", |_| true).await?;
    let up = status.hosts.map_or(0, |counts| counts.up);
    ensure!(up == hosts, "only {up} of {hosts} hosts are up");
    let follower = (leader + 1) % REPLICAS;
    let conditions = format!(
        "{hosts} simulated workers, a beat every 5 s each, all up; {sent} beats sent, {acknowledged} acknowledged; {} windows of {} s",
        shares[leader].len(),
        window.as_secs()
    );
    let rows = [
        (leader, "leader", Some(Goal::AtMost(WANTED_PERCENT))),
        (follower, "follower", None),
    ];
    let rows = rows.map(|(index, role, goal)| Row {
        what: format!("heartbeats: processor time of a {role}"),
        conditions: conditions.clone(),
        unit: "% of a core",
        values: Values::runs(&shares[index]),
        goal,
    });
    drop(fleet);
    testbed.stop()?;
    Ok(rows.to_vec())
}

fn usage(testbed: &Testbed) -> anyhow::Result<Vec<Duration>> {
    testbed.pids().into_iter().map(cpu::used_by).collect()
}
