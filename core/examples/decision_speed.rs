//! Measures decisions: single-host requests from 1k to 65k GPUs at 90 % fill, a 1,024 x 8 gang, requests inside one
//! 72-GPU domain, and placements per second of the planner and `apply` together.
//!
//! `cargo run -p muster-core --example decision_speed`
#![expect(
    clippy::disallowed_methods,
    reason = "an example that measures reads the clock; the core itself does not"
)]
#![expect(
    clippy::disallowed_types,
    reason = "an example that measures reads the clock; the core itself does not"
)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_core::command::{Command, Placement, Standing, TaskPlacement};
use muster_core::ids::{HostId, JobId, TaskIndex, UnitIndex};
use muster_core::plan::{Budget, plan};
use muster_core::spec::{JobSpec, Within};
use muster_core::testing::{Cluster, gang, gpu_uuid, host, single};
use muster_core::topology::{
    CellGroup, CellPlace, GpuMask, HostCells, HostShape, Level, Own, Topology,
};

const GPUS_PER_HOST: u32 = 8;
const HOSTS_PER_RACK: u32 = 16;
const RACKS_PER_POD: u32 = 32;
const DECISIONS: usize = 2_000;

/// SplitMix64.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u32) -> u32 {
        u32::try_from(self.next() % u64::from(bound)).unwrap_or(0)
    }
}

/// Pods of racks, hosts of two sockets with two PCIe switches each.
fn topology(hosts: u32) -> Topology {
    let group = |level: &str, gpus: std::ops::Range<u32>| CellGroup {
        level: level.to_owned(),
        gpus: gpus.collect(),
    };
    let racks = hosts.div_ceil(HOSTS_PER_RACK);
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
        places: (0..racks).map(place).collect(),
        shapes: vec![HostShape {
            gpus: GPUS_PER_HOST,
            groups: vec![
                group("socket", 0..4),
                group("socket", 4..8),
                group("pcie", 0..2),
                group("pcie", 2..4),
                group("pcie", 4..6),
                group("pcie", 6..8),
            ],
            ..HostShape::default()
        }],
    }
}

fn cluster(hosts: u32, with_topology: bool) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.audited = false;
    if with_topology {
        let request = cluster.next_request();
        cluster.apply(&Command::SetTopology {
            request,
            author: "bench".to_owned(),
            topology: Arc::new(topology(hosts)),
        });
    }
    for number in 1..=hosts {
        cluster.register(host(number, GPUS_PER_HOST));
    }
    cluster
}

/// Takes GPUs at random until 90 % are held.
fn fill(cluster: &mut Cluster, hosts: u32, draw: &mut Draw) {
    for number in 1..=hosts {
        for gpu in (0..GPUS_PER_HOST)
            .filter(|_| draw.below(10) < 9)
            .collect::<Vec<_>>()
        {
            let job = cluster.submit(single("old", 1, 1));
            let leader = cluster.leader();
            cluster.apply(&Command::Place(Placement {
                leader,
                job,
                unit: UnitIndex(0),
                standing: Standing::Share,
                tasks: Arc::from([TaskPlacement {
                    task: TaskIndex(0),
                    host: HostId(number),
                    gpus: vec![gpu_uuid(number, gpu)],
                }]),
            }));
        }
    }
}

/// Submits a job and times one planning round and the `apply` of what it decided; the job is cancelled if it waits.
fn decide(cluster: &mut Cluster, spec: JobSpec) -> (Duration, Duration, bool) {
    let job = cluster.submit(spec);
    let began = Instant::now();
    let planned = plan(&cluster.state, cluster.now, Budget::default());
    let decided = began.elapsed();
    let began = Instant::now();
    for step in &planned.steps {
        let applied = cluster.apply(step);
        assert!(applied.result.is_ok(), "{:?}", applied.result);
    }
    let applied = began.elapsed();
    let placed = !planned.steps.is_empty();
    if !placed {
        cancel(cluster, job);
    }
    (decided, applied, placed)
}

fn cancel(cluster: &mut Cluster, job: JobId) {
    let request = cluster.next_request();
    cluster.apply(&Command::CancelJob {
        request,
        job,
        author: "bench".to_owned(),
        reason: String::new(),
    });
}

fn rack(mut spec: JobSpec) -> JobSpec {
    spec.scheduling.within = Some(Within {
        level: "rack".to_owned(),
        required: true,
    });
    spec
}

fn singles(out: &mut impl std::io::Write, hosts: u32) -> std::io::Result<()> {
    let mut draw = Draw(u64::from(hosts));
    let mut cluster = cluster(hosts, true);
    fill(&mut cluster, hosts, &mut draw);
    let mut spans = Vec::new();
    let mut applied = Duration::ZERO;
    let mut placed = 0;
    for _ in 0..DECISIONS {
        let gpus = 1 + draw.below(3);
        let (decided, apply, ok) = decide(&mut cluster, single("new", 1, gpus));
        spans.push(decided);
        applied += apply;
        placed += u32::from(ok);
        // One leaves for every one that came, so that the fill stays.
        if let Some(job) = ok
            .then(|| cluster.state.index.on_host.keys().next().map(|key| key.1))
            .flatten()
        {
            cluster.finish_all(job);
        }
    }
    spans.sort_unstable();
    let mean = spans.iter().sum::<Duration>() / u32::try_from(spans.len()).unwrap_or(1);
    writeln!(
        out,
        "single host, {:6} GPUs 90 % full: mean {mean:?}, p99 {:?}, max {:?}; apply mean {:?}; {placed} of {DECISIONS} placed",
        hosts * GPUS_PER_HOST,
        spans[spans.len() * 99 / 100],
        spans[spans.len() - 1],
        applied / placed.max(1),
    )
}

fn gangs(out: &mut impl std::io::Write) -> std::io::Result<()> {
    let hosts = 8_192;
    let mut cluster = cluster(hosts, true);
    let (decided, applied, ok) = decide(&mut cluster, gang("big", 1_024, 8));
    writeln!(
        out,
        "gang 1,024 x 8 on 8,192 hosts: decided in {decided:?}, applied in {applied:?}, placed {ok}"
    )?;
    let mut spec = gang("racks", 1_024, 8);
    spec.groups[0].layout.within = Some(Within {
        level: "rack".to_owned(),
        required: true,
    });
    spec.groups[0].layout.within_tasks = Some(16);
    let (decided, applied, ok) = decide(&mut cluster, spec);
    writeln!(
        out,
        "the same, 16 by 16 within racks: decided in {decided:?}, applied in {applied:?}, placed {ok}"
    )?;
    let mut mixed = gang("mixed", 1_023, 8);
    let mut servers = mixed.groups[0].clone();
    "servers".clone_into(&mut servers.name);
    servers.count = 60;
    servers.resources.gpus = 3;
    mixed.groups.push(servers);
    let (decided, applied, ok) = decide(&mut cluster, mixed);
    writeln!(
        out,
        "1,023 x 8 and 60 x 3: decided in {decided:?}, applied in {applied:?}, placed {ok}"
    )?;
    let (decided, applied, ok) = decide(&mut cluster, rack(gang("one rack", 16, 8)));
    writeln!(
        out,
        "16 x 8 within one rack: decided in {decided:?}, applied in {applied:?}, placed {ok}"
    )?;
    let (decided, applied, ok) = decide(&mut cluster, rack(gang("no rack", 17, 8)));
    writeln!(
        out,
        "17 x 8 within one rack (impossible): decided in {decided:?}, applied in {applied:?}, placed {ok}"
    )
}

/// 72 GPUs in trays of four, trays in halves: the slowest choice over fills and requests.
fn domain(out: &mut impl std::io::Write) -> std::io::Result<()> {
    let cell = |level, first: usize, gpus: usize| muster_core::topology::InsideCell {
        level: Level(level),
        gpus: GpuMask(GpuMask::first(gpus).0 << first),
    };
    let halves = (0..2).map(|half| cell(1, half * 36, 36));
    let trays = (0..18).map(|tray| cell(2, tray * 4, 4));
    let cells = HostCells {
        inside: halves.chain(trays).collect(),
        ..HostCells::default()
    };
    let mut draw = Draw(72);
    let (mut slowest, mut all, mut count) = (Duration::ZERO, Duration::ZERO, 0u32);
    for fill in 0..=8 {
        for _ in 0..200 {
            let mut free = GpuMask::default();
            for gpu in 0..72 {
                if draw.below(8) >= fill {
                    free = free.or(GpuMask::one(gpu));
                }
            }
            for gpus in 1..=72 {
                let began = Instant::now();
                let chosen = cells.choose(Own::Host, free, gpus);
                let span = began.elapsed();
                assert_eq!(chosen.is_some(), free.count() >= gpus);
                slowest = slowest.max(span);
                all += span;
                count += 1;
            }
        }
    }
    writeln!(
        out,
        "72-GPU domain, {count} requests at all fills: mean {:?}, slowest {slowest:?}",
        all / count.max(1)
    )
}

/// Placements per second, plan and apply together, of an array over an empty cluster.
fn throughput(out: &mut impl std::io::Write, with_topology: bool) -> std::io::Result<()> {
    let mut cluster = cluster(8_192, with_topology);
    cluster.submit(single("array", 60_000, 1));
    let (mut planning, mut applying, mut placed) = (Duration::ZERO, Duration::ZERO, 0u32);
    loop {
        let began = Instant::now();
        let planned = plan(&cluster.state, cluster.now, Budget::default());
        planning += began.elapsed();
        if planned.steps.is_empty() {
            break;
        }
        let began = Instant::now();
        for step in &planned.steps {
            cluster.apply(step);
        }
        applying += began.elapsed();
        placed += u32::try_from(planned.steps.len()).unwrap_or(0);
    }
    writeln!(
        out,
        "{placed} placements {}: plan {:.2} us, apply {:.2} us each, {:.0} placements/s",
        if with_topology {
            "with pods, racks, sockets, switches"
        } else {
            "without topology"
        },
        planning.as_secs_f64() * 1e6 / f64::from(placed),
        applying.as_secs_f64() * 1e6 / f64::from(placed),
        f64::from(placed) / (planning + applying).as_secs_f64(),
    )
}

fn main() -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    for hosts in [128, 1_024, 8_192] {
        singles(&mut out, hosts)?;
    }
    gangs(&mut out)?;
    domain(&mut out)?;
    throughput(&mut out, false)?;
    throughput(&mut out, true)
}
