//! Tests of serving units in virtual clusters: units that fit the quota are always placed, and placements are
//! sound.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_engine::cells::{
    Allocation, CellPlacement, HostLoad, Price, Request, Room, TaskRequest, serve,
};
use muster_harness::Cluster;
use muster_model::command::{Command, ConfigCommand};
use muster_model::ids::{HostId, TaskKey};
use muster_model::topology::{CellId, CellKind, GpuMask, Level};
use proptest::prelude::*;

use crate::cells::safety::{CLUSTERS, draw_cluster};
use crate::cells::setup::{Draw, Shape, cells, pinned, tree};

/// Idle hosts that offer only GPUs.
#[derive(Clone)]
struct Idle<'a> {
    cluster: &'a Cluster,
    busy: BTreeMap<HostId, GpuMask>,
}

impl Room for Idle<'_> {
    fn open(&self, host: HostId) -> GpuMask {
        let gpus = self
            .cluster
            .state
            .host(host)
            .map_or(0, |host| host.gpus.len());
        GpuMask::first(gpus).without(self.busy.get(&host).copied().unwrap_or_default())
    }

    fn take(&mut self, host: HostId, offered: GpuMask, piece: &TaskRequest) -> Option<GpuMask> {
        let chosen = offered.positions().take(piece.gpus as usize);
        let chosen = chosen.fold(GpuMask::default(), |all, gpu| all.or(GpuMask::one(gpu)));
        if chosen.count() < piece.gpus {
            return None;
        }
        let busy = self.busy.entry(host).or_default();
        *busy = busy.or(chosen);
        Some(chosen)
    }

    fn evicts(&self) -> bool {
        false
    }

    fn price(&self, _: HostId, offered: GpuMask, gpus: u32) -> Option<Price> {
        (offered.count() >= gpus).then(Price::default)
    }

    fn oldest_on(&self, _: HostId) -> Option<TaskKey> {
        None
    }
}

fn request(queue: &str, pinned: Option<&str>, gpu_model: &str, tasks: &[u32]) -> Request {
    Request {
        queue: Arc::from(queue),
        pinned: pinned.map(Arc::from),
        tasks: tasks
            .iter()
            .map(|gpus| TaskRequest {
                group: 0,
                gpus: *gpus,
                gpu_model: Arc::from(gpu_model),
            })
            .collect(),
    }
}

/// Minimum GPUs per host in any cell of a kind, computed by visiting all cells of the trees of these tests.
fn host_sizes(cluster: &Cluster, allocation: &Allocation, kind: &CellKind) -> Vec<u32> {
    if kind.level >= cluster.state.topology.host_level() {
        return vec![kind.gpus];
    }
    let tree = allocation.tree();
    let mut ways = Vec::new();
    for place in &cluster.state.topology.places {
        let cell = CellId::Above(Arc::from(place.cell[0].as_str()));
        if tree.kind(&cell).as_ref() == Some(kind) {
            let mut sizes: Vec<u32> = tree
                .gpus(&cell)
                .iter()
                .map(|(_, gpus)| gpus.count())
                .collect();
            sizes.sort_unstable();
            ways.push(sizes);
        }
    }
    let Some(first) = ways.first().cloned() else {
        return Vec::new();
    };
    let count = |way: &[u32], size: u32| way.iter().filter(|other| **other == size).count();
    let mut sizes = first.clone();
    sizes.dedup();
    sizes
        .into_iter()
        .flat_map(|size| {
            let fewest = ways.iter().map(|way| count(way, size)).min().unwrap_or(0);
            std::iter::repeat_n(size, fewest)
        })
        .collect()
}

/// Everything that a virtual cluster can count on: room in its bound cells, by host, and owed cells.
fn bins(
    cluster: &Cluster,
    allocation: &Allocation,
    busy: &BTreeMap<HostId, GpuMask>,
    queue: &str,
    gpu_model: &str,
) -> Vec<u32> {
    let tree = allocation.tree();
    let mut hosts: BTreeMap<HostId, u32> = BTreeMap::new();
    for (cell, bound) in allocation.all_bound() {
        let of_model = tree
            .kind(cell)
            .is_some_and(|kind| *kind.gpu_model == *gpu_model);
        if *bound.queue == *queue && of_model {
            for (host, gpus) in tree.gpus(cell) {
                let busy = busy.get(&host).copied().unwrap_or_default();
                *hosts.entry(host).or_default() += gpus.without(busy).count();
            }
        }
    }
    let mut bins: Vec<u32> = hosts.into_values().collect();
    for (kind, quota) in allocation.quotas(queue) {
        if *kind.gpu_model == *gpu_model {
            for _ in 0..quota.owed() {
                bins.extend(host_sizes(cluster, allocation, kind));
            }
        }
    }
    bins
}

/// Whether the tasks fit the bins, by exhaustive search.
fn fits(tasks: &[u32], bins: &mut Vec<u32>) -> bool {
    let Some((first, rest)) = tasks.split_first() else {
        return true;
    };
    (0..bins.len()).any(|bin| {
        if bins[bin] < *first {
            return false;
        }
        bins[bin] -= first;
        let found = fits(rest, bins);
        bins[bin] += first;
        found
    })
}

fn assert_served(
    request: &Request,
    served: &CellPlacement<Idle<'_>>,
    busy: &BTreeMap<HostId, GpuMask>,
) {
    let mut taken = busy.clone();
    assert_eq!(served.tasks.len(), request.tasks.len());
    for ((host, gpus), piece) in served.tasks.iter().zip(&request.tasks) {
        assert_eq!(gpus.count(), piece.gpus);
        let taken = taken.entry(*host).or_default();
        assert!(taken.and(*gpus).is_empty(), "{gpus:?} of {host} twice");
        *taken = taken.or(*gpus);
        for position in gpus.positions() {
            let around = served.allocation.bound_around(*host, position);
            let (cell, bound) = around.expect("it lies in a bound cell");
            assert!(served.cells.contains(&cell));
            assert_eq!(bound.queue, request.queue);
        }
    }
    assert_eq!(served.allocation.unsafe_because(), None);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 384, ..ProptestConfig::default() })]

    #[test]
    fn a_gang_that_fits_the_quota_is_never_missed(seed in any::<u64>()) {
        let mut draw = Draw(seed);
        let cluster = draw_cluster(&mut draw);
        let mut allocation = Allocation::rebuild(&cluster.state);
        let mut busy: BTreeMap<HostId, GpuMask> = BTreeMap::new();
        let mut running: Vec<(Arc<str>, CellPlacement<Idle<'_>>)> = Vec::new();
        for _ in 0..14 {
            if draw.below(4) == 0 && !running.is_empty() {
                let position = usize::try_from(draw.below(running.len() as u64)).expect("small");
                let (queue, over) = running.swap_remove(position);
                allocation.release_cells(&queue, &over.cells);
                for (host, gpus) in &over.tasks {
                    let left = busy.entry(*host).or_default();
                    *left = left.without(*gpus);
                    let idle = HostLoad::default().with_busy(*left);
                    allocation.set_load(*host, idle);
                }
                continue;
            }
            let queue: &str = draw.pick(&CLUSTERS);
            let gpu_model: &str = draw.pick(&["H100", "A100"]);
            let sizes: &[u32] = draw.pick(&[&[1, 2, 4, 8][..], &[1, 2, 3, 4, 5, 6, 7, 8], &[3, 2, 5]]);
            let mut tasks: Vec<u32> = (0..1 + draw.below(5)).map(|_| draw.pick(sizes)).collect();
            let asked = request(queue, None, gpu_model, &tasks);
            let room = Idle { cluster: &cluster, busy: busy.clone() };
            let served = serve(&allocation, &asked, &room);
            tasks.sort_unstable_by(|one, other| other.cmp(one));
            let mut bins = bins(&cluster, &allocation, &busy, queue, gpu_model);
            if fits(&tasks, &mut bins) {
                prop_assert!(served.is_some(), "{queue}: {tasks:?} of {gpu_model} fit {bins:?}");
            }
            if let Some(served) = served {
                assert_served(&asked, &served, &busy);
                allocation = served.allocation.clone();
                for (host, gpus) in &served.tasks {
                    let taken = busy.entry(*host).or_default();
                    *taken = taken.or(*gpus);
                    allocation.take(*host, *gpus);
                }
                running.push((Arc::from(queue), served));
            }
        }
    }
}

const EVEN: Shape<'_> = Shape {
    hosts: &[(8, "H100"), (8, "H100"), (8, "H100"), (8, "H100")],
    per_rack: 2,
    per_socket: 4,
};

fn configured(quotas: &[(&str, Vec<muster_model::quota::CellQuota>)]) -> Cluster {
    let mut cluster = EVEN.cluster();
    let command = Command::Config(ConfigCommand::ConfigureQueues {
        request: cluster.next_request(),
        author: "ada".to_owned(),
        tree: Arc::new(tree(quotas)),
    });
    cluster.apply(&command).result.expect("quotas that fit");
    cluster
}

fn served<'a>(cluster: &'a Cluster, request: &Request) -> Option<CellPlacement<Idle<'a>>> {
    let room = Idle {
        cluster,
        busy: BTreeMap::new(),
    };
    serve(&Allocation::rebuild(&cluster.state), request, &room)
}

/// Defect D5 of HiveD: the small task takes the host, and the large one fits nowhere.
#[test]
fn a_large_and_a_small_task_fit_a_host_and_a_socket() {
    let cluster = configured(&[(
        "a",
        vec![cells("host", "H100", 8, 1), cells("socket", "H100", 4, 1)],
    )]);
    let served = served(&cluster, &request("a", None, "H100", &[4, 8])).expect("it fits");
    assert_eq!(served.tasks[1].1, GpuMask::first(8));
    assert_ne!(served.tasks[0].0, served.tasks[1].0);
    assert_eq!(served.cells.len(), 2);
}

/// Defect D6 of HiveD: two sockets are never used together.
#[test]
fn two_sockets_of_one_host_run_a_task_of_eight() {
    let cluster = configured(&[
        ("a", vec![cells("socket", "H100", 4, 2)]),
        ("b", vec![cells("host", "H100", 8, 3)]),
    ]);
    let served = served(&cluster, &request("a", None, "H100", &[8])).expect("both halves are free");
    let socket = |gpus| CellId::Inside(HostId(1), Level(2), GpuMask(gpus));
    assert_eq!(served.cells, [socket(0x0F), socket(0xF0)]);
    assert_eq!(served.tasks, [(HostId(1), GpuMask::first(8))]);
}

#[test]
fn a_pinned_cell_serves_only_jobs_that_request_it() {
    let cluster = configured(&[(
        "a",
        vec![
            pinned("host", "H100", 8, "gold", "node-0001"),
            cells("host", "H100", 8, 1),
        ],
    )]);
    let gold = served(&cluster, &request("a", Some("gold"), "H100", &[4, 4])).expect("it fits");
    assert_eq!(gold.cells, [CellId::Host(HostId(1))]);
    assert!(served(&cluster, &request("a", Some("gold"), "H100", &[4, 4, 1])).is_none());
    let other = served(&cluster, &request("a", None, "H100", &[4, 4])).expect("it fits");
    assert_ne!(other.cells, [CellId::Host(HostId(1))]);
    assert!(served(&cluster, &request("a", None, "H100", &[8, 8])).is_none());
}
