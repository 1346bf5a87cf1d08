//! Decisions that make room by preemption or by moving work.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use muster_harness::{Cluster, gang, gpu_uuid, single};
use muster_model::command::{AllocationBasis, Command, Placement, TaskPlacement};
use muster_model::ids::{HostId, TaskIndex, UnitIndex};
use muster_model::quota::{Defragment, QueueConfig, QueueTree};
use muster_model::spec::JobSpec;

use crate::figures::engine::cluster::{self, GPUS_PER_HOST, HOSTS, timed};
use crate::options::Bench;
use crate::row::{Goal, Row, Values};
use crate::samples::Samples;

/// Goal for room on one host, in milliseconds; HiveD's 99th percentile, without preemption, is 14.
const GOAL_MS: f64 = 10.0;
const RUNS: usize = 9;
/// Tasks and GPUs per task of the gangs that need room.
const REQUESTS: [(u32, u32); 3] = [(1, 8), (8, 8), (64, 8)];
/// GPUs held per host where free GPUs are fragmented.
const HALF: u32 = GPUS_PER_HOST / 2;
/// How long all running work has run, in milliseconds.
const RAN_MS: u64 = 300_000;
/// Time limit of running work: waiting for its end is worse than moving it.
const DAY_MS: u64 = 86_400_000;

/// A cluster with nine of ten GPUs held by low-priority tasks of one GPU each.
pub(super) fn preemption(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let hosts = bench.pick(HOSTS, HOSTS / 16);
    let mut busy = configured(hosts, true)?;
    let gpus = (0..hosts * GPUS_PER_HOST)
        .filter(|gpu| !(gpu * 7 + gpu / GPUS_PER_HOST).is_multiple_of(10));
    run(&mut busy, gpus.map(|gpu| (gpu, 1)).collect())?;
    rows(bench, "who is preempted", &busy)
}

/// A cluster with half of every host free, and the other half held by one movable task.
pub(super) fn moves(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let hosts = bench.pick(HOSTS, HOSTS / 16);
    let mut halves = configured(hosts, false)?;
    run(
        &mut halves,
        (0..hosts)
            .map(|host| (host * GPUS_PER_HOST, HALF))
            .collect(),
    )?;
    rows(bench, "who is moved", &halves)
}

fn configured(hosts: u32, preempt_by_priority: bool) -> anyhow::Result<Cluster> {
    let mut cluster = cluster::cluster(hosts)?;
    let queue = QueueConfig {
        preempt_by_priority,
        movable: true,
        ..QueueConfig::default()
    };
    cluster.configure(QueueTree {
        queues: [("default".to_owned(), queue)].into(),
        defragment: Some(Defragment {
            moves_max: 64,
            moves_in_flight_max: 64,
            after_ms: 0,
            ..Defragment::default()
        }),
        ..QueueTree::default()
    });
    Ok(cluster)
}

/// Runs the tasks of one job on ranges of GPUs, each given by its first number and length.
fn run(cluster: &mut Cluster, places: Vec<(u32, u32)>) -> anyhow::Result<()> {
    let (_, gpus) = *places.first().context("nothing is to run")?;
    let tasks = u32::try_from(places.len()).context("too many tasks")?;
    let mut spec = single("old", tasks, gpus);
    spec.stop_grace_ms = 1_000;
    spec.scheduling.run_time_ms_max = Some(DAY_MS);
    let job = cluster.submit(spec);
    for (unit, (first, gpus)) in (0..).zip(places) {
        let host = first / GPUS_PER_HOST + 1;
        let index = first % GPUS_PER_HOST;
        let task = TaskPlacement {
            task: TaskIndex(unit),
            host: HostId(host),
            gpus: (index..index + gpus)
                .map(|index| gpu_uuid(host, index))
                .collect(),
        };
        let placement = Placement {
            leader: cluster.leader(),
            job,
            unit: UnitIndex(unit),
            basis: AllocationBasis::Share,
            tasks: Arc::from([task]),
            barrier: false,
        };
        cluster.carry_out(&Command::Place(placement))?;
    }
    cluster.start_all(job);
    cluster.wait(RAN_MS);
    Ok(())
}

fn rows(bench: &Bench, what: &str, basis: &Cluster) -> anyhow::Result<Vec<Row>> {
    let rows = REQUESTS.map(|(tasks, gpus)| {
        let mut cluster = basis.clone();
        cluster.submit(urgent(tasks, gpus));
        let mut spans = Samples::default();
        let mut stopped = 0;
        for _ in 0..bench.pick(RUNS, 1) {
            let (took, planned) = timed(&cluster);
            spans.push_ms(took);
            let claims = planned.claims();
            stopped = claims
                .map(|claim| {
                    let moved = claim.moving.as_ref().map_or(0, |moving| moving.moves.len());
                    claim.victims.len() + moved
                })
                .sum();
        }
        ensure!(stopped > 0, "no room was made for {tasks} x {gpus} GPUs");
        Ok(Row {
            what: format!("{what} for {tasks} x {gpus} GPUs"),
            conditions: format!(
                "{} hosts of {GPUS_PER_HOST} GPUs; {stopped} attempts are stopped; {} runs",
                cluster.state.hosts.len(),
                spans.len()
            ),
            unit: "ms",
            values: Values::runs(&spans),
            goal: (tasks == 1).then_some(Goal::AtMost(GOAL_MS)),
        })
    });
    rows.into_iter().collect()
}

fn urgent(tasks: u32, gpus: u32) -> JobSpec {
    let mut spec = gang("urgent", tasks, gpus);
    spec.priority = 5;
    spec
}
