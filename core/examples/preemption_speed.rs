//! Measures preemption: 8,192 hosts with 65,536 GPUs, nine of ten held by tasks of a low priority; who asks, fits nowhere
//! without it.
//!
//! `cargo run -p muster-core --example preemption_speed`
#![expect(
    clippy::disallowed_methods,
    reason = "an example that measures reads the clock; the core itself does not"
)]
#![expect(
    clippy::disallowed_types,
    reason = "an example that measures reads the clock; the core itself does not"
)]

use std::error::Error;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_core::command::{Command, Placement, Standing, TaskPlacement};
use muster_core::ids::{HostId, TaskIndex, UnitIndex};
use muster_core::plan::{Budget, plan};
use muster_core::quota::{QueueConfig, QueueTree};
use muster_core::testing::{Cluster, gang, gpu_uuid, single};

const HOSTS: u32 = 8_192;
const GPUS_PER_HOST: u32 = 8;
const RUNS: usize = 9;

/// Every task holds one GPU and has run for an hour.
fn busy_cluster() -> Cluster {
    let mut cluster = Cluster::with_hosts(HOSTS, GPUS_PER_HOST);
    cluster.audited = false;
    let queue = QueueConfig {
        preempt_by_priority: true,
        ..QueueConfig::default()
    };
    cluster.configure(QueueTree {
        queues: [("default".to_owned(), queue)].into(),
        ..QueueTree::default()
    });
    let gpus = 0..HOSTS * GPUS_PER_HOST;
    let held: Vec<u32> = gpus
        .filter(|gpu| !(gpu * 7 + gpu / GPUS_PER_HOST).is_multiple_of(10))
        .collect();
    let tasks = u32::try_from(held.len()).unwrap_or(u32::MAX);
    let job = cluster.submit(single("old", tasks, 1));
    for (unit, gpu) in (0..).zip(held) {
        let host = gpu / GPUS_PER_HOST + 1;
        let leader = cluster.leader();
        let placed = cluster.apply(&Command::Place(Placement {
            leader,
            job,
            unit: UnitIndex(unit),
            standing: Standing::Share,
            tasks: Arc::from([TaskPlacement {
                task: TaskIndex(unit),
                host: HostId(host),
                gpus: vec![gpu_uuid(host, gpu % GPUS_PER_HOST)],
            }]),
        }));
        assert!(placed.result.is_ok(), "{:?}", placed.result);
    }
    cluster.start_all(job);
    cluster.wait(3_600_000);
    cluster
}

fn main() -> Result<(), Box<dyn Error>> {
    let busy = busy_cluster();
    for (tasks, gpus) in [(1, 8), (8, 8), (64, 4), (64, 8)] {
        let mut cluster = busy.clone();
        let mut spec = gang("urgent", tasks, gpus);
        spec.priority = 5;
        cluster.submit(spec);
        let mut spans: Vec<Duration> = Vec::new();
        let mut victims = 0;
        for _ in 0..RUNS {
            let begin = Instant::now();
            let planned = plan(&cluster.state, cluster.now, Budget::default());
            spans.push(begin.elapsed());
            victims = planned.claims().map(|claim| claim.victims.len()).sum();
        }
        spans.sort_unstable();
        let (least, median) = (spans[0], spans[RUNS / 2]);
        writeln!(
            std::io::stdout(),
            "{tasks} x {gpus} GPUs: {victims} victims, {median:?} (at least {least:?})"
        )?;
    }
    Ok(())
}
