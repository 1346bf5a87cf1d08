//! Single decisions: requests for some GPUs of one host, and gangs.

use std::collections::BTreeMap;

use anyhow::ensure;
use muster_harness::{Cluster, gang, single};
use muster_model::quota::{CellQuota, Guarantee, QueueConfig, QueueTree};
use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

use crate::figures::engine::cluster::{self, HOSTS, decide, within};
use crate::figures::engine::mean_and_p99;
use crate::options::Bench;
use crate::row::{Goal, Row, Values};
use crate::samples::Samples;

/// Goals for the mean and the 99th percentile of a decision in virtual clusters, in microseconds.
const GOAL_US: (f64, f64) = (50.0, 1_000.0);
/// Goal for the growth of the cost from 1,024 to 65,536 GPUs: the ratio of their logarithms, 16 / 10.
const GROWTH_GOAL: f64 = 1.6;
/// Goal for a gang of 1,024 x 8, in milliseconds.
const GANG_GOAL_MS: f64 = 50.0;
const VIRTUAL_CLUSTERS: u32 = 11;
/// Hosts guaranteed to each virtual cluster: together all but eight.
const HOSTS_EACH: u32 = 744;
const GPUS_MAX: u32 = 4;
const RUNS: usize = 5;
/// 1,024, 8,192 and 65,536 GPUs.
const HOSTS_GROWING: [u32; 3] = [HOSTS / 64, HOSTS / 8, HOSTS];

/// Cost of a request for one to three GPUs of one host, and its growth from 1,024 to 65,536 GPUs, nine of ten
/// held.
/// The clusters take turns, so that none has the processor's caches to itself, and other load of the machine
/// affects all alike.
pub(super) fn single_host(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let [small, medium, large] = HOSTS_GROWING;
    let mut growing = [
        Growing::new(small)?,
        Growing::new(medium)?,
        Growing::new(large)?,
    ];
    for _ in 0..bench.pick(4_000, 200) {
        for cluster in &mut growing {
            cluster.decide()?;
        }
    }
    let mut rows = Vec::new();
    for cluster in &growing {
        let conditions = format!(
            "{} GPUs, 90 % held at random, no guarantees; {} requests for 1 to 3 GPUs of one host",
            cluster.hosts * cluster::GPUS_PER_HOST,
            cluster.spans.len()
        );
        let decision = mean_and_p99("one decision", &conditions, &cluster.spans, None);
        rows.extend(decision);
    }
    let first = "first time: the memory's latency counts, which grows with what is in use";
    rows.push(growth(
        first,
        growing.each_ref().map(|cluster| &cluster.spans),
    ));
    let again = "same plan once more: the work alone";
    let mut worked = growth(again, growing.each_ref().map(|cluster| &cluster.again));
    worked.goal = Some(Goal::AtMost(GROWTH_GOAL));
    rows.push(worked);
    Ok(rows)
}

/// Ratio of the medians on the largest and the smallest cluster.
fn growth(what: &str, spans: [&Samples; HOSTS_GROWING.len()]) -> Row {
    let [first, .., last] = spans.map(Samples::median);
    Row {
        what: "growth of the median decision".to_owned(),
        conditions: format!(
            "{what}; 65,536 against 1,024 GPUs, {last:.1} against {first:.1} us; logarithms grow 1.6 times"
        ),
        unit: "times",
        values: Values::One(last / first),
        goal: None,
    }
}

/// A cluster of some size, and the duration of decisions on it.
struct Growing {
    hosts: u32,
    random: ChaCha8Rng,
    cluster: Cluster,
    /// Microseconds.
    spans: Samples,
    /// Microseconds for the same plan computed once more.
    again: Samples,
}

impl Growing {
    fn new(hosts: u32) -> anyhow::Result<Self> {
        let mut random = ChaCha8Rng::seed_from_u64(u64::from(hosts));
        let mut cluster = cluster::cluster(hosts)?;
        cluster::fill(&mut cluster, hosts, &mut random)?;
        Ok(Self {
            hosts,
            random,
            cluster,
            spans: Samples::default(),
            again: Samples::default(),
        })
    }

    fn decide(&mut self) -> anyhow::Result<()> {
        let gpus = self.random.random_range(1..GPUS_MAX);
        let decided = decide(&mut self.cluster, single("new", 1, gpus))?;
        self.spans.push(decided.took.as_secs_f64() * 1e6);
        self.again.push(decided.again.as_secs_f64() * 1e6);
        // One job leaves for each that was placed, so that the fill level stays.
        if decided.placed {
            cluster::end_one(&mut self.cluster)?;
        }
        Ok(())
    }
}

/// The same in eleven virtual clusters with hosts as their cells.
pub(super) fn virtual_clusters(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let mut cluster = cluster::cluster(HOSTS)?;
    cluster.configure(tree());
    let mut random = ChaCha8Rng::seed_from_u64(u64::from(VIRTUAL_CLUSTERS));
    fill_clusters(&mut cluster)?;
    let mut spans = Samples::default();
    let mut placed = 0;
    for _ in 0..bench.pick(4_000, 200) {
        let mut spec = single("new", 1, random.random_range(1..=GPUS_MAX));
        spec.queue = queue(random.random_range(0..VIRTUAL_CLUSTERS));
        let decided = decide(&mut cluster, spec)?;
        spans.push(decided.took.as_secs_f64() * 1e6);
        if decided.placed {
            placed += 1;
            cluster.finish_all(decided.job);
        }
    }
    ensure!(placed > 0, "no request found room");
    let conditions = format!(
        "65,536 GPUs, {VIRTUAL_CLUSTERS} virtual clusters of {HOSTS_EACH} hosts, 90 % of the GPUs held; {} requests \
         for \
         1 to {GPUS_MAX} GPUs of one host, {placed} placed",
        spans.len()
    );
    let what = "one decision in virtual clusters";
    Ok(mean_and_p99(what, &conditions, &spans, Some(GOAL_US)).into())
}

fn queue(number: u32) -> String {
    format!("vc{number:02}")
}

fn tree() -> QueueTree {
    let hosts = CellQuota {
        level: "host".to_owned(),
        gpu_model: "H100".to_owned(),
        gpus: cluster::GPUS_PER_HOST,
        count: HOSTS_EACH,
        pinned: Vec::new(),
    };
    let config = QueueConfig {
        guarantee: Guarantee::Cells(vec![hosts]),
        ..QueueConfig::default()
    };
    let mut queues = BTreeMap::from([("default".to_owned(), QueueConfig::default())]);
    queues.extend((0..VIRTUAL_CLUSTERS).map(|number| (queue(number), config.clone())));
    QueueTree {
        queues,
        ..QueueTree::default()
    }
}

/// Fills nine tenths of every virtual cluster with jobs of four, two and one GPUs.
fn fill_clusters(cluster: &mut Cluster) -> anyhow::Result<()> {
    let gpus = HOSTS_EACH * cluster::GPUS_PER_HOST * 9 / 10;
    for number in 0..VIRTUAL_CLUSTERS {
        for (gpus_each, jobs) in [(4, gpus / 8), (2, gpus / 8), (1, gpus / 4)] {
            let mut spec = single("old", jobs, gpus_each);
            spec.queue = queue(number);
            cluster.submit(spec);
        }
    }
    cluster::settle(cluster)
}

/// Gangs on 8,192 empty hosts.
pub(super) fn gangs(bench: &Bench) -> anyhow::Result<Vec<Row>> {
    let mut in_racks = gang("racks", 1_024, 8);
    in_racks.groups[0].layout.within = within("rack");
    in_racks.groups[0].layout.within_tasks = Some(16);
    let mut mixed = gang("mixed", 1_023, 8);
    let mut servers = mixed.groups[0].clone();
    "servers".clone_into(&mut servers.name);
    servers.count = 60;
    servers.resources.gpus = 3;
    mixed.groups.push(servers);
    let specs = [
        ("1,024 x 8", gang("plain", 1_024, 8)),
        ("1,024 x 8, sixteen and sixteen within a rack", in_racks),
        ("1,023 x 8 and 60 x 3", mixed),
    ];
    let empty = cluster::cluster(HOSTS)?;
    let mut rows = Vec::new();
    for (what, spec) in specs {
        let mut spans = Samples::default();
        for _ in 0..bench.pick(RUNS, 1) {
            let decided = decide(&mut empty.clone(), spec.clone())?;
            ensure!(decided.placed, "{what} found no room in an empty cluster");
            spans.push_ms(decided.took);
        }
        rows.push(Row {
            what: format!("one decision for a gang of {what}"),
            conditions: format!("65,536 GPUs, all free; {} runs", spans.len()),
            unit: "ms",
            values: Values::runs(&spans),
            goal: Some(Goal::AtMost(GANG_GOAL_MS)),
        });
    }
    Ok(rows)
}
