//! Single cases: refused quotas and bindings with their arithmetic, and the choice of cells.

use std::sync::Arc;

use muster_engine::cells::{Allocation, Load, check_quotas};
use muster_harness::{Cluster, gpu_uuid};
use muster_model::command::{Command, ConfigCommand, GpuHealth, HostCommand, HostHealth};
use muster_model::ids::HostId;
use muster_model::topology::{CellId, CellKind, GpuMask, Level};

use crate::cells::setup::{Shape, bind_best, cells, pinned, queues, tree};

const EVEN: Shape<'_> = Shape {
    hosts: &[(8, "H100"), (8, "H100"), (8, "H100"), (8, "H100")],
    per_rack: 2,
    per_socket: 4,
};

fn kind(level: u8, gpus: u32) -> CellKind {
    CellKind {
        level: Level(level),
        gpu_model: Arc::from("H100"),
        gpus,
    }
}

fn rules(cluster: &Cluster, quotas: &[(&str, Vec<muster_model::quota::CellQuota>)]) -> Vec<String> {
    let wanted = tree(quotas);
    let found = check_quotas(&cluster.state, &cluster.state.index.tree, queues(&wanted));
    found.iter().map(ToString::to_string).collect()
}

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

#[test]
fn quotas_over_the_cells_are_refused_with_the_arithmetic() {
    let cluster = EVEN.cluster();
    let fits = [
        (
            "a",
            vec![cells("rack", "H100", 16, 1), cells("socket", "H100", 4, 1)],
        ),
        (
            "b",
            vec![cells("host", "H100", 8, 1), cells("socket", "H100", 4, 1)],
        ),
    ];
    assert_eq!(rules(&cluster, &fits), Vec::<String>::new());
    let over = [
        (
            "a",
            vec![cells("rack", "H100", 16, 1), cells("socket", "H100", 4, 1)],
        ),
        (
            "b",
            vec![cells("host", "H100", 8, 1), cells("socket", "H100", 4, 2)],
        ),
    ];
    assert_eq!(
        rules(&cluster, &over),
        [
            "queues: cells are missing: socket of 4 H100: 0 free + 2 x 1 left of host of 8 H100 - 3 owed \
             = -1 (owed: a 1, b 2)"
        ]
    );
    let unknown = [("a", vec![cells("host", "H100", 5, 1)])];
    assert_eq!(
        rules(&cluster, &unknown),
        ["queues: cells are missing: host of 5 H100: 0 free - 1 owed = -1 (owed: a 1)"]
    );
}

#[test]
fn pinned_cells_must_exist_be_of_their_kind_and_lie_apart() {
    let cluster = EVEN.cluster();
    let broken = [(
        "a",
        vec![
            pinned("host", "H100", 8, "gold", "node-0001"),
            pinned("socket", "H100", 4, "inside", "node-0001:4"),
            pinned("host", "A100", 8, "model", "node-0002"),
            pinned("rack", "H100", 16, "none", "r9"),
        ],
    )];
    assert_eq!(
        rules(&cluster, &broken),
        [
            "queues.a.guarantee.cells[1].pinned: `node-0001:4` lies in or around another pinned cell",
            "queues.a.guarantee.cells[2].pinned: `node-0002` is a host of 8 H100, not a host of 8 A100",
            "queues.a.guarantee.cells[3].pinned: `r9` is not a rack of the cluster",
        ]
    );
}

/// HiveD's run-time check (2.5 of the study) accepts this: two GPUs, of which one is owed whole and one
/// alone.
#[test]
fn a_binding_is_checked_as_strictly_as_the_configuration() {
    let cluster = configured(&[
        (
            "a",
            vec![cells("host", "H100", 8, 2), cells("rack", "H100", 16, 1)],
        ),
        ("b", vec![cells("socket", "H100", 4, 0)]),
    ]);
    let mut allocation = Allocation::rebuild(&cluster.state);
    let a = Arc::from("a");
    allocation
        .bind_safely(&a, &CellId::Host(HostId(1)))
        .expect("the first host is within the quota");
    let refused = allocation.bind_safely(&a, &CellId::Host(HostId(3)));
    assert_eq!(
        refused.map_err(|refusal| refusal.to_string()),
        Err(
            "host node-0003 is needed for guaranteed cells: rack of 16 H100: 0 free - 1 owed = -1"
                .to_owned()
        )
    );
    let b = Arc::from("b");
    let socket = CellId::Inside(HostId(2), Level(2), GpuMask(0xF));
    let refused = allocation.bind_safely(&b, &socket);
    assert_eq!(
        refused.map_err(|refusal| refusal.to_string()),
        Err(
            "socket node-0002:0: 0 of 0 guaranteed cells (socket of 4 H100) are bound already"
                .to_owned()
        )
    );
    allocation
        .bind_safely(&a, &CellId::Host(HostId(2)))
        .expect("the buddy of the first cell");
}

#[test]
fn the_smallest_split_with_the_least_load_is_chosen() {
    let mut cluster = configured(&[(
        "a",
        vec![cells("host", "H100", 8, 1), cells("socket", "H100", 4, 3)],
    )]);
    let job = cluster.submit(muster_harness::single("filler", 1, 3));
    cluster.place_all(job);
    let mut allocation = Allocation::rebuild(&cluster.state);
    assert_eq!(
        allocation.tree().load(&CellId::Host(HostId(1))),
        Load { bad: 0, busy: 3 }
    );
    let socket = |host, gpus| CellId::Inside(HostId(host), Level(2), GpuMask(gpus));
    let bound: Vec<_> = [kind(2, 4), kind(2, 4), kind(2, 4), kind(1, 8)]
        .iter()
        .map(|kind| bind_best(&mut allocation, "a", kind))
        .collect();
    // The idle rack first, then the rest of its split.
    assert_eq!(
        bound,
        [
            Some(socket(3, 0x0F)),
            Some(socket(3, 0xF0)),
            Some(socket(4, 0x0F)),
            Some(CellId::Host(HostId(2))),
        ]
    );
}

#[test]
fn bad_cells_are_avoided_unless_others_are_guaranteed_the_good_ones() {
    let quotas = [("a", vec![cells("host", "H100", 8, 3)])];
    let mut cluster = configured(&quotas);
    for host in [1, 2, 3] {
        cluster.apply(&Command::Host(HostCommand::SetGpuHealth {
            leader: cluster.leader(),
            host: HostId(host),
            gpu: gpu_uuid(host, 0),
            health: GpuHealth::Faulted {
                signal: "xid-79".to_owned(),
                detail: String::new(),
            },
        }));
    }
    let mut allocation = Allocation::rebuild(&cluster.state);
    assert_eq!(
        bind_best(&mut allocation, "a", &kind(1, 8)),
        Some(CellId::Host(HostId(4))),
        "the healthy one, regardless of what is free in its rack"
    );
    let shortages = allocation.shortages();
    assert_eq!(shortages.len(), 1);
    assert_eq!(shortages[0].missing, 2);
    assert_eq!(
        shortages[0].arithmetic,
        "host of 8 H100: 0 free - 2 owed = -2"
    );
    assert_eq!(shortages[0].owed, [(Arc::from("a"), 2)]);
}

/// One healthy cell is left and two virtual clusters are owed one each: HiveD reports both as healthy.
#[test]
fn shortage_is_counted_over_all_virtual_clusters() {
    let mut cluster = configured(&[
        ("a", vec![cells("rack", "H100", 16, 1)]),
        ("b", vec![cells("rack", "H100", 16, 1)]),
    ]);
    assert_eq!(Allocation::rebuild(&cluster.state).shortages(), []);
    cluster.apply(&Command::Host(HostCommand::SetHostHealth {
        leader: cluster.leader(),
        host: HostId(1),
        health: HostHealth::Lost,
        one_way: false,
    }));
    let shortages = Allocation::rebuild(&cluster.state).shortages();
    assert_eq!(shortages.len(), 1);
    assert_eq!(shortages[0].missing, 1);
    assert_eq!(
        shortages[0].owed,
        [(Arc::from("a"), 1), (Arc::from("b"), 1)]
    );
}
