//! Cells reported by workers: accepted and rejected reports, and their effect on work when they change.

use std::sync::Arc;

use muster_engine::state::State;
use muster_harness::{Cluster, gang, host_of_model, single};
use muster_model::command::{AllocationBasis, Command, ConfigCommand, HostRegistration};
use muster_model::event::EventKind;
use muster_model::ids::{GpuUuid, HostId, JobId, UnitIndex};
use muster_model::quota::{CellQuota, Guarantee, QueueConfig, QueueTree};
use muster_model::rejection::Rejection;
use muster_model::spec::{JobSpec, Within};
use muster_model::topology::{
    CellPlace, CellSource, HostCells, IgnoredReport, NamedCell, ReportedGpu, ReportedTopology,
    Topology,
};
use muster_planner::{Budget, plan};

/// A host of eight GPUs whose worker reports these cells around it.
fn host(number: u32, above: &[(&str, &str)]) -> HostRegistration {
    let mut host = host_of_model(number, 8, "H100");
    host.reported.above = above
        .iter()
        .map(|(level, name)| NamedCell {
            level: (*level).to_owned(),
            name: (*name).to_owned(),
        })
        .collect();
    host
}

/// The host with two sockets of two switches each.
fn with_switches(mut host: HostRegistration) -> HostRegistration {
    host.reported = ReportedTopology {
        inside: vec!["socket".to_owned(), "switch".to_owned()],
        gpus: host
            .gpus
            .iter()
            .map(|gpu| ReportedGpu {
                uuid: gpu.uuid,
                pci_address: String::new(),
                cells: vec![(gpu.index / 4).to_string(), (gpu.index / 2).to_string()],
            })
            .collect(),
        ..host.reported
    };
    host
}

fn in_rack(number: u32, rack: &str) -> HostRegistration {
    with_switches(host(number, &[("pod", "p1"), ("rack", rack)]))
}

fn cluster(hosts: impl IntoIterator<Item = HostRegistration>) -> Cluster {
    let mut cluster = Cluster::with_hosts(0, 0);
    for host in hosts {
        assert!(cluster.register(host).result.is_ok());
    }
    cluster
}

fn cells(cluster: &Cluster, host: u32) -> &HostCells {
    &cluster.state.index.host_cells[&HostId(host)]
}

fn path(cluster: &Cluster, host: u32) -> &str {
    cells(cluster, host).above.last().map_or("", |path| path)
}

fn again(mut host: HostRegistration) -> HostRegistration {
    host.incarnation += 1;
    host
}

fn last_events(state: &State) -> Vec<EventKind> {
    let events = state.events.iter().last();
    events.map_or_else(Vec::new, |(_, events)| {
        events.iter().map(|event| event.kind.clone()).collect()
    })
}

fn set_topology(cluster: &mut Cluster, topology: Topology) -> Result<(), Rejection> {
    let command = Command::Config(ConfigCommand::SetTopology {
        request: cluster.next_request(),
        author: "grace".to_owned(),
        topology: Arc::new(topology),
    });
    cluster.apply(&command).result.map(|_| ())
}

/// Plans until no step is left.
fn settle(cluster: &mut Cluster) {
    loop {
        let steps = plan(&cluster.state, cluster.now, Budget::default()).steps;
        if steps.is_empty() {
            return;
        }
        for step in steps {
            let applied = cluster.apply(&step);
            assert!(applied.result.is_ok(), "{step:?}: {:?}", applied.result);
        }
    }
}

/// Positions of the GPUs of a job's first unit, with their host.
fn gpus_of(cluster: &Cluster, job: JobId) -> Vec<(u32, usize)> {
    let attempt = cluster.attempt(job, UnitIndex(0)).expect("it was placed");
    let runs = attempt.tasks.iter().flat_map(|run| {
        let host = cluster.state.host(run.host).expect("the host exists");
        let position = |uuid: &GpuUuid| host.gpus.iter().position(|gpu| gpu.uuid == *uuid);
        let positions = run.gpus.iter().filter_map(position);
        positions.map(move |position| (host.id.get(), position))
    });
    runs.collect()
}

fn within(mut spec: JobSpec, level: &str) -> JobSpec {
    spec.groups[0].layout.within = Some(Within {
        level: level.to_owned(),
        required: true,
    });
    spec
}

#[test]
fn work_shares_cells_that_only_workers_know() {
    let mut cluster = cluster([in_rack(1, "r1"), in_rack(2, "r2"), in_rack(3, "r2")]);
    assert_eq!(cluster.state.topology.above, ["pod", "rack"]);
    assert_eq!(cluster.state.topology.inside, ["socket", "switch"]);
    assert_eq!(*cluster.state.configured_topology, Topology::default());
    cluster.submit(single("odd", 1, 1));
    settle(&mut cluster);
    let pair = cluster.submit(within(single("pair", 1, 2), "switch"));
    let four = cluster.submit(within(single("four", 1, 4), "socket"));
    let wide = cluster.submit(within(gang("wide", 2, 8), "rack"));
    settle(&mut cluster);
    let pair = gpus_of(&cluster, pair);
    assert_eq!((pair[0].0, pair[0].1 / 2), (pair[1].0, pair[1].1 / 2));
    let four = gpus_of(&cluster, four);
    assert!(
        four.iter()
            .all(|gpu| (gpu.0, gpu.1 / 4) == (four[0].0, four[0].1 / 4))
    );
    let hosts: Vec<u32> = gpus_of(&cluster, wide).iter().map(|gpu| gpu.0).collect();
    assert!(hosts.contains(&2) && hosts.contains(&3));
}

#[test]
fn hosts_with_equal_cells_are_of_one_kind_regardless_of_cell_names() {
    let mut other = in_rack(2, "r2");
    for gpu in &mut other.reported.gpus {
        gpu.cells = vec![
            format!("s{}", gpu.cells[0]),
            format!("0000:{}0:00.0", gpu.cells[1]),
        ];
    }
    let cluster = cluster([in_rack(1, "r1"), other]);
    assert_eq!(cells(&cluster, 1).inside, cells(&cluster, 2).inside);
}

#[test]
fn a_rack_in_two_pods_is_placed_where_most_hosts_report_it() {
    let hosts = [
        in_rack(1, "r1"),
        in_rack(2, "r1"),
        host(3, &[("pod", "p2"), ("rack", "r1")]),
    ];
    let mut cluster = cluster(hosts);
    assert_eq!(
        ["p1/r1", "p1/r1", ""],
        [1, 2, 3].map(|number| path(&cluster, number))
    );
    let flaw = IgnoredReport::Elsewhere {
        level: "rack".to_owned(),
        here: "p2/r1".to_owned(),
        by_most: "p1/r1".to_owned(),
    };
    assert_eq!(*cells(&cluster, 3).flaws, *std::slice::from_ref(&flaw));
    let doubted = EventKind::HostCellsDoubted {
        host: HostId(3),
        name: "node-0003".to_owned(),
        flaws: vec![flaw.to_string()],
    };
    assert!(last_events(&cluster.state).contains(&doubted));
    // The others follow, one by one, until no contradiction is left.
    cluster.register(again(host(1, &[("pod", "p2"), ("rack", "r1")])));
    assert_eq!(
        ["p2/r1", "", "p2/r1"],
        [1, 2, 3].map(|number| path(&cluster, number))
    );
    cluster.register(again(host(2, &[("pod", "p2"), ("rack", "r1")])));
    assert_eq!(["p2/r1"; 3], [1, 2, 3].map(|number| path(&cluster, number)));
    assert!((1..=3).all(|number| cells(&cluster, number).flaws.is_empty()));
}

#[test]
fn of_two_reported_locations_that_of_the_host_registered_first_counts() {
    let cluster = cluster([in_rack(1, "r1"), host(2, &[("pod", "p0"), ("rack", "r1")])]);
    assert_eq!(["p1/r1", ""], [1, 2].map(|number| path(&cluster, number)));
}

#[test]
fn a_configured_location_takes_precedence_over_reported_ones() {
    let mut cluster = cluster([in_rack(1, "r1"), in_rack(2, "r2"), in_rack(3, "r1")]);
    let topology = Topology {
        above: vec!["pod".to_owned(), "rack".to_owned()],
        places: vec![CellPlace {
            cell: vec!["p9".to_owned(), "r2".to_owned()],
            hosts: vec!["node-0001".to_owned()],
        }],
        ..Topology::default()
    };
    assert_eq!(set_topology(&mut cluster, topology), Ok(()));
    assert_eq!(
        ["p9/r2", "", "p1/r1"],
        [1, 2, 3].map(|number| path(&cluster, number))
    );
    assert_eq!(cells(&cluster, 1).above_by, CellSource::Configuration);
    assert_eq!(cells(&cluster, 1).inside_by, CellSource::Worker);
    assert!(matches!(
        &*cells(&cluster, 1).flaws,
        [IgnoredReport::Overruled { .. }]
    ));
    // The configured rack is in another pod than this worker reports.
    assert!(matches!(
        &*cells(&cluster, 2).flaws,
        [IgnoredReport::Elsewhere { .. }]
    ));
    assert_eq!(cells(&cluster, 3).above_by, CellSource::Worker);
    assert_eq!(set_topology(&mut cluster, Topology::default()), Ok(()));
    assert_eq!(
        ["p1/r1", "p1/r2", "p1/r1"],
        [1, 2, 3].map(|number| path(&cluster, number))
    );
}

#[test]
fn levels_that_do_not_fit_are_named() {
    let hosts = [
        in_rack(1, "r1"),
        in_rack(2, "r1"),
        host(3, &[("rack", "r1")]),
        host(4, &[("rack", "r1"), ("pod", "p1")]),
        host(5, &[("zone", "z"), ("pod", "p1"), ("rack", "r1")]),
    ];
    let cluster = cluster(hosts);
    assert_eq!(cluster.state.topology.above, ["pod", "rack"]);
    assert!(
        matches!(&*cells(&cluster, 3).flaws, [IgnoredReport::MissingLevel { level }] if level == "pod")
    );
    assert!(matches!(
        &*cells(&cluster, 4).flaws,
        [IgnoredReport::LevelOrder { .. }]
    ));
    assert!(
        matches!(&*cells(&cluster, 5).flaws, [IgnoredReport::UnknownLevel { level, .. }] if level == "zone")
    );
    assert_eq!(
        ["", "", "p1/r1"],
        [3, 4, 5].map(|number| path(&cluster, number))
    );
}

#[test]
fn cells_that_do_not_nest_count_as_none() {
    let mut bent = in_rack(1, "r1");
    bent.reported.gpus[3].cells[1] = "2".to_owned();
    let cluster = cluster([bent]);
    let inside = cells(&cluster, 1);
    assert!(inside.inside.is_empty());
    assert!(matches!(&*inside.flaws, [IgnoredReport::Straddles { cell, .. }] if cell == "2"));
    assert_eq!(path(&cluster, 1), "p1/r1");
}

#[test]
fn an_invalid_reported_location_is_refused_naming_its_field() {
    let mut cluster = cluster([]);
    let bad = host(1, &[("host", "n")]);
    let refused = cluster.register(bad).result;
    assert!(
        matches!(&refused, Err(Rejection::InvalidRegistration(broken)) if broken.field == "reported.above.level"),
        "{refused:?}"
    );
}

#[test]
fn a_host_name_that_commands_cannot_address_is_refused() {
    let mut cluster = cluster([]);
    for name in ["node[05]", "a,b", "a/3", "-a", "two words", "é"] {
        let mut named = host_of_model(1, 1, "H100");
        named.name = name.to_owned();
        let refused = cluster.register(named).result;
        assert!(
            matches!(&refused, Err(Rejection::InvalidRegistration(broken)) if broken.field == "name"),
            "{name}: {refused:?}"
        );
    }
    let mut named = host_of_model(1, 1, "H100");
    named.name = "gpu-01.rack_2".to_owned();
    assert!(cluster.register(named).result.is_ok());
}

#[test]
fn a_host_that_moves_and_a_gpu_that_is_replaced_disturb_nothing() {
    let mut cluster = cluster([in_rack(1, "r1"), in_rack(2, "r1"), in_rack(3, "r2")]);
    let job = cluster.submit(within(gang("train", 2, 7), "rack"));
    settle(&mut cluster);
    cluster.start_all(job);
    let before = cluster.attempt(job, UnitIndex(0)).cloned();
    let mut moved = again(in_rack(1, "r2"));
    // The last GPU is replaced by another card.
    let spare = host_of_model(77, 1, "H100").gpus[0].uuid;
    moved.gpus[7].uuid = spare;
    moved.reported.gpus[7].uuid = spare;
    moved.reported.gpus.sort_by_key(|gpu| gpu.uuid);
    cluster.register(moved);
    assert_eq!(path(&cluster, 1), "p1/r2");
    assert_eq!(cells(&cluster, 1).inside.len(), 6);
    assert_eq!(cluster.attempt(job, UnitIndex(0)), before.as_ref());
}

#[test]
fn a_held_gpu_that_is_missing_keeps_its_cell() {
    let mut cluster = cluster([in_rack(1, "r1")]);
    let job = cluster.submit(single("train", 1, 8));
    settle(&mut cluster);
    cluster.start_all(job);
    let inside = cells(&cluster, 1).inside.clone();
    let mut less = again(in_rack(1, "r1"));
    less.gpus.pop();
    less.reported.gpus.pop();
    cluster.register(less);
    assert_eq!(cells(&cluster, 1).inside, inside);
}

/// A queue with a guarantee of cells.
fn vc(level: &str, gpus: u32, count: u32) -> QueueTree {
    let quota = CellQuota {
        level: level.to_owned(),
        gpu_model: "H100".to_owned(),
        gpus,
        count,
        pinned: Vec::new(),
    };
    let queue = QueueConfig {
        guarantee: Guarantee::Cells(vec![quota]),
        ..QueueConfig::default()
    };
    QueueTree {
        queues: [("vc".to_owned(), queue)].into(),
        ..QueueTree::default()
    }
}

#[test]
fn a_virtual_cluster_survives_the_loss_and_return_of_its_reported_cells() {
    let mut cluster = cluster([in_rack(1, "r1")]);
    cluster.configure(vc("switch", 2, 2));
    let mut spec = single("train", 1, 2);
    spec.queue = "vc".to_owned();
    let job = cluster.submit(spec);
    settle(&mut cluster);
    cluster.start_all(job);
    let allocation_basis = |cluster: &Cluster| {
        let attempt = cluster.attempt(job, UnitIndex(0)).expect("the job runs");
        assert_eq!(attempt.stop, None);
        attempt.allocation_basis.clone()
    };
    assert!(matches!(
        allocation_basis(&cluster),
        AllocationBasis::Cells(_)
    ));
    cluster.register(again(host(1, &[])));
    assert_eq!(allocation_basis(&cluster), AllocationBasis::Opportunistic);
    // The level remains because cells of it are guaranteed: the shortage is visible.
    assert!(cluster.state.topology.level("switch").is_some());
    assert_eq!(cluster.state.topology.level("socket"), None);
    assert!(!cluster.state.index.allocation.shortages().is_empty());
    cluster.register(again(again(in_rack(1, "r1"))));
    assert!(cluster.state.index.allocation.shortages().is_empty());
    settle(&mut cluster);
    assert!(matches!(
        allocation_basis(&cluster),
        AllocationBasis::Cells(_)
    ));
    // No guarantee needs the level any more: it is removed with its last report.
    cluster.configure(QueueTree::default());
    let silent = host(1, &[]);
    cluster.register(again(again(again(silent))));
    assert_eq!(cluster.state.topology.level("switch"), None);
}

#[test]
fn a_configuration_without_a_reported_level_is_refused_while_the_level_is_guaranteed() {
    let mut cluster = cluster([in_rack(1, "r1"), in_rack(2, "r1")]);
    cluster.configure(vc("rack", 16, 1));
    let zones = Topology {
        above: vec!["zone".to_owned()],
        ..Topology::default()
    };
    let refused = set_topology(&mut cluster, zones);
    assert!(
        matches!(refused, Err(Rejection::InvalidConfiguration(_))),
        "{refused:?}"
    );
}
