//! Bounds on time, far above what is measured, so that only a change of order fails them.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a test that measures"
)]

use std::sync::Arc;
use std::time::Instant;

use muster_core::cells::{Allocation, Wanted};
use muster_core::command::Command;
use muster_core::testing::Cluster;
use muster_core::topology::{CellKind, Level};

use crate::setup::{Shape, cells, tree};

/// The cluster of HiveD's benchmark (5.1 of the study): hosts of 8 GPUs in sockets of 4, racks of 16 hosts.
fn large() -> Cluster {
    let hosts = vec![(8, "H100"); 8_192];
    let shape = Shape {
        hosts: &hosts,
        per_rack: 16,
        per_socket: 4,
    };
    let mut cluster = shape.cluster();
    let names: Vec<String> = (0..11).map(|number| format!("vc{number:02}")).collect();
    let quotas: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), vec![cells("host", "H100", 8, 744)]))
        .collect();
    let command = Command::ConfigureQueues {
        request: cluster.next_request(),
        author: "ada".to_owned(),
        tree: Arc::new(tree(&quotas)),
    };
    cluster.apply(&command).result.expect("quotas that fit");
    cluster
}

#[test]
fn a_large_cluster_is_rebuilt_and_bound_quickly() {
    let cluster = large();
    let begin = Instant::now();
    let mut allocation = Allocation::rebuild(&cluster.state);
    let rebuilt = begin.elapsed();
    let kind = CellKind {
        level: Level(1),
        gpu_model: Arc::from("H100"),
        gpus: 8,
    };
    let begin = Instant::now();
    let mut bound = Vec::new();
    for number in 0..11u32 {
        let queue: Arc<str> = Arc::from(format!("vc{number:02}"));
        for _ in 0..670 {
            let wanted = Wanted {
                kind: &kind,
                healthy_gpus: 8,
                free_gpus: 8,
            };
            let (after, cell) = allocation
                .choose(wanted, |cell| {
                    let mut trial = allocation.clone();
                    trial.bind_safely(&queue, cell).ok()?;
                    Some((trial, cell.clone()))
                })
                .expect("there is room");
            allocation = after;
            bound.push((Arc::clone(&queue), cell));
        }
    }
    let each = begin.elapsed() / u32::try_from(bound.len()).expect("thousands");
    let begin = Instant::now();
    for (queue, cell) in &bound {
        allocation.release(queue, cell);
    }
    let released = begin.elapsed() / u32::try_from(bound.len()).expect("thousands");
    let report = format!("rebuild {rebuilt:?}, bind {each:?}, release {released:?}");
    assert!(rebuilt.as_millis() < 500, "{report}");
    assert!(each.as_micros() < 500, "{report}");
    assert!(released.as_micros() < 500, "{report}");
    if std::env::var_os("MUSTER_SHOW_SPEED").is_some() {
        panic!("{report}");
    }
}
