//! Small clusters with cells and virtual clusters.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_engine::cells::{Allocation, Wanted};
use muster_harness::{Cluster, host_of_model};
use muster_model::command::{Command, ConfigCommand};
use muster_model::quota::{CellQuota, Guarantee, PinnedCell, QueueConfig, QueueTree};
use muster_model::topology::{CellGroup, CellId, CellKind, CellPlace, HostShape, Topology};

/// Pseudo-random numbers from a seed.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound
    }

    pub(crate) fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        let position = self.below(all.len() as u64);
        all[usize::try_from(position).expect("a position in memory")].clone()
    }
}

/// Hosts with these numbers of GPUs and models, in racks of `per_rack` (none: no racks), with sockets of
/// `per_socket` GPUs (0: none).
pub(crate) struct Shape<'a> {
    pub(crate) hosts: &'a [(u32, &'a str)],
    pub(crate) per_rack: usize,
    pub(crate) per_socket: u32,
}

impl Shape<'_> {
    pub(crate) fn topology(&self) -> Topology {
        let mut topology = Topology::default();
        if self.per_rack > 0 {
            topology.above = vec!["rack".to_owned()];
            let names: Vec<String> = (1..=self.hosts.len())
                .map(|number| format!("node-{number:04}"))
                .collect();
            topology.places = names
                .chunks(self.per_rack)
                .enumerate()
                .map(|(rack, hosts)| CellPlace {
                    cell: vec![format!("r{rack}")],
                    hosts: hosts.to_vec(),
                })
                .collect();
        }
        if self.per_socket > 0 {
            topology.inside = vec!["socket".to_owned()];
            let sizes: std::collections::BTreeSet<u32> =
                self.hosts.iter().map(|(gpus, _)| *gpus).collect();
            topology.shapes = sizes
                .into_iter()
                .map(|gpus| HostShape {
                    gpu_model: String::new(),
                    gpus,
                    hosts: Vec::new(),
                    groups: sockets(gpus, self.per_socket),
                })
                .collect();
        }
        topology
    }

    pub(crate) fn cluster(&self) -> Cluster {
        let mut cluster = Cluster::new();
        cluster.observer.enabled = false;
        let command = Command::Config(ConfigCommand::SetTopology {
            request: cluster.next_request(),
            author: "ada".to_owned(),
            topology: Arc::new(self.topology()),
        });
        cluster.apply(&command).result.expect("a valid topology");
        for (number, (gpus, model)) in (1u32..).zip(self.hosts) {
            cluster
                .register(host_of_model(number, *gpus, model))
                .result
                .expect("a valid host");
        }
        cluster
    }
}

fn sockets(gpus: u32, per_socket: u32) -> Vec<CellGroup> {
    (0..gpus)
        .step_by(per_socket as usize)
        .map(|first| CellGroup {
            level: "socket".to_owned(),
            gpus: (first..gpus.min(first + per_socket)).collect(),
        })
        .collect()
}

/// A quota of `count` cells of a kind.
pub(crate) fn cells(level: &str, gpu_model: &str, gpus: u32, count: u32) -> CellQuota {
    CellQuota {
        level: level.to_owned(),
        gpu_model: gpu_model.to_owned(),
        gpus,
        count,
        pinned: Vec::new(),
    }
}

/// One pinned cell.
pub(crate) fn pinned(level: &str, gpu_model: &str, gpus: u32, name: &str, cell: &str) -> CellQuota {
    CellQuota {
        pinned: vec![PinnedCell {
            name: name.to_owned(),
            cell: cell.to_owned(),
        }],
        ..cells(level, gpu_model, gpus, 0)
    }
}

/// Virtual clusters by name.
pub(crate) fn tree(clusters: &[(&str, Vec<CellQuota>)]) -> QueueTree {
    QueueTree {
        queues: clusters
            .iter()
            .map(|(name, quotas)| {
                let config = QueueConfig {
                    guarantee: Guarantee::Cells(quotas.clone()),
                    ..QueueConfig::default()
                };
                ((*name).to_owned(), config)
            })
            .collect::<BTreeMap<_, _>>(),
        history_half_life_ms: None,
        defragment: None,
    }
}

/// Queues in the form that the checks take.
pub(crate) fn queues(tree: &QueueTree) -> impl Iterator<Item = (&str, &QueueConfig)> + Clone {
    tree.queues
        .iter()
        .map(|(name, config)| (name.as_str(), config))
}

/// Binds the best cell of a kind, if one may be bound.
pub(crate) fn bind_best(
    allocation: &mut Allocation,
    queue: &str,
    kind: &CellKind,
) -> Option<CellId> {
    let queue = Arc::from(queue);
    let wanted = Wanted {
        kind,
        healthy_gpus: 0,
        free_gpus: 0,
    };
    let (bound, cell) = allocation.choose(wanted, |cell| {
        let mut trial = allocation.clone();
        trial.bind_safely(&queue, cell).ok()?;
        Some((trial, cell.clone()))
    })?;
    *allocation = bound;
    Some(cell)
}
