//! Requests inside one domain of 72 GPUs: trays of four, in two halves.

use std::sync::Arc;

use muster_harness::{Cluster, host, single};
use muster_model::command::{Command, ConfigCommand};
use muster_model::topology::{HostShape, Topology};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::figures::engine::cluster::{self, cells, decide};
use crate::options::Bench;
use crate::row::{Goal, Row, Values};
use crate::samples::Samples;

const GPUS: u32 = 72;
const HALF: u32 = 36;
const TRAY: u32 = 4;
/// Goal for the slowest request, in milliseconds.
const GOAL_MS: f64 = 1.0;
/// Fill levels, in eighths of the GPUs.
const FILLS: u32 = 8;

/// Measures every size of request at fill levels from zero to seven eighths.
pub(super) fn measure(bench: &Bench) -> anyhow::Result<Row> {
    let mut random = ChaCha8Rng::seed_from_u64(u64::from(GPUS));
    let mut spans = Samples::default();
    for fill in 0..FILLS {
        for _ in 0..bench.pick(10, 1) {
            let mut cluster = domain()?;
            for gpu in 0..GPUS {
                if random.random_range(0..FILLS) < fill {
                    cluster::occupy(&mut cluster, 1, gpu)?;
                }
            }
            for gpus in 1..=GPUS {
                let decided = decide(&mut cluster.clone(), single("new", 1, gpus))?;
                spans.push_ms(decided.took);
            }
        }
    }
    Ok(Row {
        what: "one decision inside a domain of 72 GPUs".to_owned(),
        conditions: format!(
            "one host of 18 trays in two halves, empty to 7/8 held at random; {} requests for 1 to 72 GPUs",
            spans.len()
        ),
        unit: "ms",
        values: Values::percentiles(&spans),
        goal: Some(Goal::Percentiles {
            p50: GOAL_MS,
            p99: GOAL_MS,
        }),
    })
}

fn domain() -> anyhow::Result<Cluster> {
    let halves = (0..2).map(|half| cells("half", half * HALF..(half + 1) * HALF));
    let trays = (0..GPUS / TRAY).map(|tray| cells("tray", tray * TRAY..(tray + 1) * TRAY));
    let topology = Topology {
        inside: vec!["half".to_owned(), "tray".to_owned()],
        shapes: vec![HostShape {
            gpus: GPUS,
            groups: halves.chain(trays).collect(),
            ..HostShape::default()
        }],
        ..Topology::default()
    };
    let mut cluster = Cluster::new();
    cluster.observer.enabled = false;
    let request = cluster.next_request();
    let command = Command::Config(ConfigCommand::SetTopology {
        request,
        author: "bench".to_owned(),
        topology: Arc::new(topology),
    });
    cluster.carry_out(&command)?;
    let mut large = host(1, GPUS);
    large.cpus_milli = 1_000 * GPUS;
    cluster.register(large);
    Ok(cluster)
}
