//! Rebuild of the planner's indexes when a replica reads a state. A new leader rebuilds nothing: `apply` kept
//! its indexes up to date while it followed.

use anyhow::{Context as _, ensure};
use muster_engine::state::Index;
use muster_harness::single;
use muster_log::{read_state, write_state};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

use crate::figures::engine::cluster::{self, HOSTS};
use crate::options::Bench;
use crate::row::{Goal, Row, Values};
use crate::samples::Samples;

/// Goal, in milliseconds.
const GOAL_MS: f64 = 500.0;
const RUNS: usize = 5;

/// A state with 65,536 GPUs, nine of ten held, and waiting jobs.
pub(super) fn measure(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let mut cluster = cluster::cluster(HOSTS)?;
    let mut random = ChaCha8Rng::seed_from_u64(u64::from(HOSTS));
    cluster::fill(&mut cluster, HOSTS, &mut random)?;
    let running = cluster.state.jobs.len();
    let waiting = bench.pick(100_000, 2_000) - running.min(bench.pick(100_000, 2_000));
    for _ in 0..waiting {
        cluster.submit(single("wait", 1, 1));
    }
    let conditions = format!("65,536 GPUs, {running} jobs running and {waiting} waiting");
    let mut indexing = Samples::default();
    for _ in 0..bench.pick(RUNS, 1) {
        let began = Instant::now();
        let index = Index::rebuild(&cluster.state);
        indexing.push_ms(began.elapsed());
        ensure!(index == cluster.state.index, "the indexes differ");
    }
    let mut bytes = Vec::new();
    write_state(&cluster.state, &mut bytes).context("writing the state")?;
    let mut reading = Samples::default();
    for _ in 0..bench.pick(RUNS, 1) {
        let began = Instant::now();
        let state = read_state(&mut bytes.as_slice()).context("reading the state")?;
        reading.push_ms(began.elapsed());
        ensure!(state.jobs.len() == running + waiting, "jobs were lost");
    }
    Ok(vec![
        Row {
            what: "all indexes of the planner from a state".to_owned(),
            conditions: format!("{conditions}; {} runs", indexing.len()),
            unit: "ms",
            values: Values::runs(&indexing),
            goal: Some(Goal::AtMost(GOAL_MS)),
        },
        Row {
            what: "state and all indexes from the bytes of a snapshot".to_owned(),
            conditions: format!(
                "{conditions}, {} MiB; {} runs",
                bytes.len() >> 20,
                reading.len()
            ),
            unit: "ms",
            values: Values::runs(&reading),
            goal: None,
        },
    ])
}
