//! Whole planning rounds: one that places nothing, and rounds that place as much as possible.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::ensure;
use muster_harness::{Cluster, gang, single};
use muster_model::command::{Block, BlockTarget, Command, Planned};
use muster_model::ids::HostId;
use muster_model::quota::{QueueConfig, QueueOrder, QueueTree};
use tokio::time::Instant;

use crate::figures::engine::cluster::{self, GPUS_PER_HOST, HOSTS, timed};
use crate::options::Bench;
use crate::row::{Goal, Row, Values};
use crate::samples::Samples;

/// Goal for a round in which nothing can be placed, in milliseconds.
const CYCLE_GOAL_MS: f64 = 10.0;
/// Goal for placements per second of the engine alone.
const PLACEMENTS_GOAL: f64 = 100_000.0;
/// Hosts of the full cluster.
const FULL_HOSTS: u32 = 1_000;
const USERS: u32 = 16;
/// Latest begin of the planned blocks, in milliseconds from now.
const WINDOW_IN_MS: u64 = 600_000;
const RUNS: usize = 9;

/// An idle cluster whose hosts will all be blocked so soon that none of 100,000 jobs may begin there:
/// identical jobs, and jobs of 1,000 placement classes in two queues.
pub(super) fn nothing_in_time(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let jobs = bench.pick(100_000, 2_000);
    let rows = [1, 1_000].map(|shapes| {
        let mut cluster = idle();
        for number in 1..=FULL_HOSTS {
            plan_block(&mut cluster, number)?;
        }
        for number in 0..jobs {
            let mut spec = waiting(number, shapes);
            // Some are longer than others, and all too long.
            let run_time_ms = WINDOW_IN_MS + u64::from(number % shapes);
            spec.scheduling.run_time_ms_max = number.is_multiple_of(2).then_some(run_time_ms);
            cluster.submit(spec);
        }
        cluster.wait(1);
        let mut spans = Samples::default();
        for _ in 0..RUNS {
            let (took, planned) = timed(&cluster);
            ensure!(planned.steps.is_empty(), "something began that cannot end");
            spans.push_ms(took);
        }
        Ok(Row {
            what: "one planning round in which nothing can end before planned blocks".to_owned(),
            conditions: format!(
                "{jobs} jobs wait, shapes: {shapes}; {} GPUs, all free, a block is planned for each of {FULL_HOSTS} \
                 hosts; {} runs",
                FULL_HOSTS * GPUS_PER_HOST,
                spans.len()
            ),
            unit: "ms",
            values: Values::runs(&spans),
            goal: None,
        })
    });
    rows.into_iter().collect()
}

/// Plans a block of a host, some later than others.
fn plan_block(cluster: &mut Cluster, number: u32) -> anyhow::Result<()> {
    let begins_at = cluster.now.after(WINDOW_IN_MS - u64::from(number));
    let block = Block {
        reason: "driver".to_owned(),
        author: "bench".to_owned(),
        evidence: String::new(),
        since: cluster.now,
        expires_at: None,
        drain_deadline: None,
        planned: Some(Planned {
            at: begins_at,
            notice_ms: Planned::NOTICE_MS_DEFAULT,
        }),
    };
    let host = cluster.state.host(HostId(number));
    let name = host.map(|host| host.name.to_string());
    let command = Command::Block {
        request: cluster.next_request(),
        target: BlockTarget::Host(name.unwrap_or_default()),
        block,
        spares_last: false,
    };
    cluster.carry_out(&command)?;
    Ok(())
}

/// A full cluster with 100,000 waiting jobs: identical ones, and ones of 1,000 placement classes in two
/// queues.
pub(super) fn nothing_placeable(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let jobs = bench.pick(100_000, 2_000);
    let rows = [1, 1_000].map(|shapes| {
        let mut cluster = full()?;
        for number in 0..jobs {
            cluster.submit(waiting(number, shapes));
        }
        let mut spans = Samples::default();
        for _ in 0..RUNS {
            let (took, planned) = timed(&cluster);
            ensure!(planned.steps.is_empty(), "a full cluster had room");
            spans.push_ms(took);
        }
        Ok(Row {
            what: "one planning round in which nothing can be placed".to_owned(),
            conditions: format!(
                "{jobs} jobs wait, shapes: {shapes}; {} GPUs, all held; {} runs",
                FULL_HOSTS * GPUS_PER_HOST,
                spans.len()
            ),
            unit: "ms",
            values: Values::runs(&spans),
            goal: Some(Goal::AtMost(CYCLE_GOAL_MS)),
        })
    });
    rows.into_iter().collect()
}

fn full() -> anyhow::Result<Cluster> {
    let mut cluster = idle();
    cluster.submit(single("sweep", FULL_HOSTS * GPUS_PER_HOST, 1));
    cluster::settle(&mut cluster)?;
    Ok(cluster)
}

/// An idle cluster with one queue of each ordering policy.
fn idle() -> Cluster {
    let mut cluster = Cluster::with_hosts(FULL_HOSTS, GPUS_PER_HOST);
    cluster.observer.enabled = false;
    let fair = QueueConfig {
        order: QueueOrder::Fair,
        ..QueueConfig::default()
    };
    cluster.configure(QueueTree {
        queues: BTreeMap::from([
            ("default".to_owned(), QueueConfig::default()),
            ("fair".to_owned(), fair),
        ]),
        ..QueueTree::default()
    });
    cluster
}

/// Single tasks and gangs in alternation, every fourth in the fair-share queue.
fn waiting(number: u32, shapes: u32) -> muster_model::spec::JobSpec {
    let shape = number % shapes;
    let mut spec = match shape % 2 {
        0 => single("wait", 1, 1 + shape % 8),
        _ => gang("wait", 1 + shape % 64, 1 + shape % 8),
    };
    spec.groups[0].resources.memory_mib = 1_024 + u64::from(shape);
    if shapes > 1 && number.is_multiple_of(4) {
        "fair".clone_into(&mut spec.queue);
        spec.user = format!("user-{}", number % USERS);
    }
    spec
}

/// An array of 60,000 tasks over 8,192 empty hosts, planned and applied.
pub(super) fn placements(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let tasks = bench.pick(60_000, 5_000);
    let mut rates = Samples::default();
    for _ in 0..bench.pick(3, 1) {
        let mut cluster = cluster::cluster(HOSTS)?;
        cluster.submit(single("array", tasks, 1));
        let mut placed = 0;
        let mut took = Duration::ZERO;
        loop {
            let began = Instant::now();
            let (_, planned) = timed(&cluster);
            cluster.carry_out_plan(&planned)?;
            took += began.elapsed();
            placed += planned.placements().count();
            if planned.steps.is_empty() {
                break;
            }
        }
        ensure!(placed == tasks as usize, "{placed} of {tasks} were placed");
        rates.push(f64::from(tasks) / took.as_secs_f64());
    }
    Ok(vec![Row {
        what: "placements of the engine alone".to_owned(),
        conditions: format!(
            "{tasks} tasks of one GPU on 65,536 GPUs with pods, racks, sockets and switches; decided and applied; {} \
             runs",
            rates.len()
        ),
        unit: "/s",
        values: Values::runs(&rates),
        goal: Some(Goal::AtLeast(PLACEMENTS_GOAL)),
    }])
}
