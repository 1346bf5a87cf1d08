//! Clusters in memory, filled, and execution of the planner's steps on them.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use muster_harness::{Cluster, gpu_uuid, host, single};
use muster_model::command::{AllocationBasis, Command, ConfigCommand, Placement, TaskPlacement};
use muster_model::ids::{HostId, JobId, TaskIndex, UnitIndex};
use muster_model::spec::{JobSpec, Within};
use muster_model::topology::{CellGroup, CellPlace, HostShape, Topology};
use muster_planner::Plan;
use rand::Rng as _;
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

pub(super) const GPUS_PER_HOST: u32 = 8;
/// 8,192 hosts with 65,536 GPUs.
pub(super) const HOSTS: u32 = 8_192;
const HOSTS_PER_RACK: u32 = 16;
const RACKS_PER_POD: u32 = 32;
/// GPUs in ten that are held.
const HELD_OF_TEN: u32 = 9;

/// Hosts of eight GPUs in pods and racks, with two sockets and four PCIe switches each.
pub(super) fn cluster(hosts: u32) -> anyhow::Result<Cluster> {
    let mut cluster = Cluster::new();
    cluster.observer.enabled = false;
    let request = cluster.next_request();
    cluster.carry_out(&Command::Config(ConfigCommand::SetTopology {
        request,
        author: "bench".to_owned(),
        topology: Arc::new(topology(hosts)),
    }))?;
    for number in 1..=hosts {
        cluster.register(host(number, GPUS_PER_HOST));
    }
    Ok(cluster)
}

fn topology(hosts: u32) -> Topology {
    let place = |rack: u32| {
        let first = rack * HOSTS_PER_RACK + 1;
        let last = (first + HOSTS_PER_RACK - 1).min(hosts);
        CellPlace {
            cell: vec![
                format!("pod-{}", rack / RACKS_PER_POD),
                format!("rack-{rack}"),
            ],
            hosts: (first..=last)
                .map(|number| format!("node-{number:04}"))
                .collect(),
        }
    };
    Topology {
        above: vec!["pod".to_owned(), "rack".to_owned()],
        inside: vec!["socket".to_owned(), "pcie".to_owned()],
        places: (0..hosts.div_ceil(HOSTS_PER_RACK)).map(place).collect(),
        shapes: vec![HostShape {
            gpus: GPUS_PER_HOST,
            groups: vec![
                cells("socket", 0..4),
                cells("socket", 4..8),
                cells("pcie", 0..2),
                cells("pcie", 2..4),
                cells("pcie", 4..6),
                cells("pcie", 6..8),
            ],
            ..HostShape::default()
        }],
    }
}

/// A cell inside a host.
pub(super) fn cells(level: &str, gpus: Range<u32>) -> CellGroup {
    CellGroup {
        level: level.to_owned(),
        gpus: gpus.collect(),
    }
}

/// Takes GPUs at random until nine of ten are held, each by a job of its own.
pub(super) fn fill(
    cluster: &mut Cluster,
    hosts: u32,
    random: &mut ChaCha8Rng,
) -> anyhow::Result<()> {
    for number in 1..=hosts {
        for gpu in 0..GPUS_PER_HOST {
            if random.random_range(0..10) < HELD_OF_TEN {
                occupy(cluster, number, gpu)?;
            }
        }
    }
    Ok(())
}

/// A job that holds one GPU.
pub(super) fn occupy(cluster: &mut Cluster, number: u32, gpu: u32) -> anyhow::Result<()> {
    let job = cluster.submit(single("old", 1, 1));
    let placement = Placement {
        leader: cluster.leader(),
        job,
        unit: UnitIndex(0),
        basis: AllocationBasis::Share,
        barrier: false,
        tasks: Arc::from([TaskPlacement {
            task: TaskIndex(0),
            host: HostId(number),
            gpus: vec![gpu_uuid(number, gpu)],
        }]),
    };
    cluster.carry_out(&Command::Place(placement))?;
    Ok(())
}

/// Duration of one job's decision.
pub(super) struct DecisionTime {
    pub(super) job: JobId,
    /// Duration of the planning round alone.
    pub(super) took: Duration,
    /// Duration of the same round repeated: the same work, with all its data in the processor's caches.
    pub(super) again: Duration,
    pub(super) placed: bool,
}

/// Submits a job, times one planning round, and executes its steps; a job that has to wait is cancelled.
pub(super) fn decide(cluster: &mut Cluster, spec: JobSpec) -> anyhow::Result<DecisionTime> {
    let job = cluster.submit(spec);
    let (took, planned) = timed(cluster);
    let (again, _) = timed(cluster);
    cluster.carry_out_plan(&planned)?;
    let placed = planned.placements().any(|placement| placement.job == job);
    if !placed {
        let request = cluster.next_request();
        let cancel = Command::CancelJob {
            request,
            job,
            author: "bench".to_owned(),
            reason: String::new(),
        };
        cluster.carry_out(&cancel)?;
    }
    Ok(DecisionTime {
        job,
        took,
        again,
        placed,
    })
}

/// Times a planning round.
pub(super) fn timed(cluster: &Cluster) -> (Duration, Plan) {
    let began = Instant::now();
    let planned = cluster.plan();
    (began.elapsed(), planned)
}

/// Plans and executes until nothing more is placed.
pub(super) fn settle(cluster: &mut Cluster) -> anyhow::Result<()> {
    loop {
        let planned = cluster.plan();
        if planned.steps.is_empty() {
            return Ok(());
        }
        cluster.carry_out_plan(&planned)?;
    }
}

/// Ends the job that runs on the first host in use.
pub(super) fn end_one(cluster: &mut Cluster) -> anyhow::Result<()> {
    let first = cluster.state.index.units_on_host.keys().next();
    let (_, unit) = *first.context("nothing runs that could end")?;
    cluster.finish_all(unit.job);
    Ok(())
}

/// A requirement to lie within one cell.
pub(super) fn within(level: &str) -> Option<Within> {
    Some(Within {
        level: level.to_owned(),
        required: true,
    })
}
