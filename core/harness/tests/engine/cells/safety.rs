//! Properties: after any bindings and releases, every virtual cluster can get all that it is owed, and no GPU
//! lies in the cells of two.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_engine::cells::{Allocation, check_quotas};
use muster_harness::Cluster;
use muster_model::command::{Command, ConfigCommand, HostCommand};
use muster_model::topology::{CellId, CellKind};
use proptest::prelude::*;

use crate::cells::setup::{Draw, Shape, bind_best, cells, queues, tree};

pub(crate) const CLUSTERS: [&str; 3] = ["a", "b", "c"];
const OPERATIONS: u64 = 60;

/// A random cluster with random virtual clusters that it can honour.
pub(crate) fn draw_cluster(draw: &mut Draw) -> Cluster {
    let even = draw.below(3) > 0;
    let sizes: &[u32] = if even { &[8] } else { &[8, 8, 4, 5] };
    let hosts: Vec<(u32, &str)> = (0..2 + draw.below(9))
        .map(|_| (draw.pick(sizes), draw.pick(&["H100", "H100", "A100"])))
        .collect();
    let shape = Shape {
        hosts: &hosts,
        per_rack: draw.pick(&[0, 2, 3]),
        per_socket: draw.pick(&[0, 4, 2]),
    };
    let mut cluster = shape.cluster();
    let mut quotas = BTreeMap::from(CLUSTERS.map(|name| (name, Vec::new())));
    for _ in 0..draw.below(12) {
        let level: &str = draw.pick(&["rack", "host", "host", "socket", "gpu"]);
        let gpu_model: &str = draw.pick(&["H100", "A100"]);
        let quota = cells(level, gpu_model, draw.pick(&[1, 2, 4, 5, 8, 16, 24]), 1);
        let mut more = quotas.clone();
        more.entry(draw.pick(&CLUSTERS)).or_default().push(quota);
        let listed: Vec<_> = more
            .iter()
            .map(|(name, all)| (*name, all.clone()))
            .collect();
        let wanted = tree(&listed);
        let topology = Arc::clone(&cluster.state.topology);
        let known = wanted
            .queues
            .values()
            .all(|_| muster_model::quota::validate(&wanted, &topology).is_empty());
        if known
            && check_quotas(&cluster.state, &cluster.state.index.tree, queues(&wanted)).is_empty()
        {
            quotas = more;
        }
    }
    let listed: Vec<_> = quotas.into_iter().collect();
    let command = Command::Config(ConfigCommand::ConfigureQueues {
        request: cluster.next_request(),
        author: "ada".to_owned(),
        tree: Arc::new(tree(&listed)),
    });
    cluster.apply(&command).result.expect("quotas that fit");
    cluster
}

/// All kinds that a virtual cluster is still owed, once per cell.
fn owed(allocation: &Allocation) -> Vec<(&'static str, CellKind)> {
    let of = |name: &'static str| {
        let quotas = allocation.quotas(name);
        quotas.flat_map(move |(kind, quota)| {
            std::iter::repeat_n((name, kind.clone()), quota.owed() as usize)
        })
    };
    CLUSTERS.iter().flat_map(|name| of(name)).collect()
}

fn assert_sound(allocation: &Allocation, draw: &mut Draw) {
    assert_eq!(allocation.unsafe_because(), None);
    let mut seen = BTreeMap::new();
    for (cell, bound) in allocation.all_bound() {
        for (host, gpus) in allocation.tree().gpus(cell) {
            for position in gpus.positions() {
                let earlier = seen.insert((host, position), bound.queue.clone());
                assert_eq!(earlier, None, "{cell:?} overlaps");
            }
        }
    }
    let mut trial = allocation.clone();
    let mut open = owed(&trial);
    while !open.is_empty() {
        let position = draw.below(open.len() as u64);
        let (name, kind) = open.swap_remove(usize::try_from(position).expect("small"));
        let found = bind_best(&mut trial, name, &kind);
        assert!(
            found.is_some(),
            "{name} does not get its {kind:?}: {allocation:#?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn every_guarantee_can_be_served_at_any_moment(seed in any::<u64>()) {
        let mut draw = Draw(seed);
        let cluster = draw_cluster(&mut draw);
        let empty = Allocation::rebuild(&cluster.state);
        let mut allocation = empty.clone();
        let mut held: Vec<(&str, CellId)> = Vec::new();
        for _ in 0..OPERATIONS {
            let open = owed(&allocation);
            if draw.below(5) < 3 && !open.is_empty() {
                let (name, kind) = draw.pick(&open);
                let cell = bind_best(&mut allocation, name, &kind);
                prop_assert!(cell.is_some(), "{name} does not get its {kind:?}");
                held.extend(cell.map(|cell| (name, cell)));
            } else if !held.is_empty() {
                let position = draw.below(held.len() as u64);
                let (name, cell) = held.swap_remove(usize::try_from(position).expect("small"));
                allocation.release(&Arc::from(name), &cell);
            }
            assert_sound(&allocation, &mut draw);
        }
        for (name, cell) in held {
            allocation.release(&Arc::from(name), &cell);
        }
        prop_assert_eq!(allocation, empty, "what is released is merged again");
    }

    #[test]
    fn no_allowed_binding_breaks_the_guarantees_of_others(seed in any::<u64>()) {
        let mut draw = Draw(seed);
        let cluster = draw_cluster(&mut draw);
        let mut allocation = Allocation::rebuild(&cluster.state);
        let mut all: Vec<CellId> = Vec::new();
        let mut open: Vec<CellId> = cluster.state.hosts.keys().map(|id| CellId::Host(*id)).collect();
        open.extend(
            cluster.state.topology.places.iter().map(|place| CellId::Above(Arc::from(place.cell[0].as_str()))),
        );
        while let Some(cell) = open.pop() {
            if matches!(cell, CellId::Host(_) | CellId::Inside(..)) {
                open.extend(allocation.tree().children(&cell));
            }
            all.push(cell);
        }
        for _ in 0..OPERATIONS {
            let name = Arc::from(draw.pick(&CLUSTERS));
            let cell = draw.pick(&all);
            if allocation.bind_safely(&name, &cell).is_ok() {
                assert_sound(&allocation, &mut draw);
            }
        }
    }

    #[test]
    fn changes_of_loads_and_hosts_equal_a_rebuild(seed in any::<u64>()) {
        let mut draw = Draw(seed);
        let mut cluster = draw_cluster(&mut draw);
        cluster.observer.enabled = true;
        for _ in 0..20 {
            let number = u32::try_from(1 + draw.below(12)).expect("small");
            let gpu = u32::try_from(draw.below(5)).expect("small");
            let id = cluster.state.host_by_name(&format!("node-{number:04}")).map(|host| host.id);
            match (draw.below(3), id) {
                (0, Some(host)) => {
                    cluster.apply(&Command::Host(HostCommand::SetGpuHealth {
                        leader: cluster.leader(),
                        host,
                        gpu: muster_harness::gpu_uuid(number, gpu),
                        health: muster_model::command::GpuHealth::Faulted {
                            signal: "xid-79".to_owned(),
                            detail: String::new(),
                        },
                    }));
                }
                (1, Some(host)) => {
                    cluster.apply(&Command::Host(HostCommand::SetHostHealth {
                        leader: cluster.leader(),
                        host,
                        health: draw.pick(&[
                            muster_model::command::HostHealth::Up,
                            muster_model::command::HostHealth::Lost,
                        ]),
                        one_way: false,
                    }));
                }
                _ => {
                    let gpus = draw.pick(&[8, 8, 4, 0]);
                    let model = draw.pick(&["H100", "A100"]);
                    cluster.register(muster_harness::host_of_model(number, gpus, model));
                }
            }
        }
    }
}
