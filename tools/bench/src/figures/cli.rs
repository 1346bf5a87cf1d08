//! One durable submit by the command line program, from the start of its process to its exit.

use std::process::Stdio;

use anyhow::{Context as _, ensure};
use tokio::process::Command;
use tokio::time::Instant;

use crate::options::Bench;
use crate::row::{Goal, Row, Values};
use crate::samples::Samples;
use crate::testbed::{Shape, Testbed};

/// Goal, in milliseconds.
const GOAL_MS: f64 = 6.0;

pub(super) async fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let testbed = Testbed::start(bench, Shape::REPLICAS_ONLY).await?;
    let leader = testbed.leader().await?;
    let follower = (leader + 1) % testbed.addresses().len();
    let mut rows = Vec::new();
    for (index, role) in [(leader, "leader"), (follower, "follower")] {
        let address = testbed.addresses()[index].clone();
        let mut times = Samples::default();
        for _ in 0..bench.pick(200, 20) {
            times.push(submit_ms(bench, &address).await?);
        }
        rows.push(Row {
            what: "one submit by the command line program, start to exit".to_owned(),
            conditions: format!("to a {role}, idle cluster; {} processes", times.len()),
            unit: "ms",
            values: Values::percentiles(&times),
            goal: Some(Goal::AtMost(GOAL_MS)),
        });
    }
    testbed.stop()?;
    Ok(rows)
}

async fn submit_ms(bench: &Bench, address: &str) -> anyhow::Result<f64> {
    let mut command = Command::new(&bench.binary);
    command
        .args(["job", "submit", "--address", address, "--", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let began = Instant::now();
    let child = command
        .spawn()
        .context("starting the command line program")?;
    let output = child.wait_with_output().await?;
    let took = began.elapsed();
    ensure!(
        output.status.success(),
        "the command line program failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(took.as_secs_f64() * 1e3)
}
