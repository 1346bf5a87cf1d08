//! Queue trees and topologies: arbitrary ones, and valid ones that take effect.

use std::collections::BTreeMap;
use std::sync::Arc;

use muster_model::command::{Command, ConfigCommand};
use muster_model::quota::{
    Amounts, CellQuota, Defragment, Guarantee, Limits, PinnedCell, QueueConfig, QueueOrder,
    QueueTree,
};
use muster_model::topology::{CellGroup, CellPlace, HostShape, Topology};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

use crate::round_trip::strategies::{request, text};

/// Queues of valid trees.
const QUEUES: [&str; 4] = ["default", "research", "research/vision", "production"];

fn by_model() -> impl Strategy<Value = BTreeMap<String, u64>> {
    btree_map(text(), 1..100u64, 0..3)
}

fn amounts() -> impl Strategy<Value = Amounts> {
    (any::<[u64; 3]>(), by_model()).prop_map(|(numbers, gpus_by_model)| Amounts {
        gpus: numbers[0],
        gpus_by_model,
        cpus_milli: numbers[1],
        memory_mib: numbers[2],
    })
}

fn limits() -> impl Strategy<Value = Limits> {
    let number = || option::of(any::<u64>());
    (number(), by_model(), number(), number()).prop_map(
        |(gpus, gpus_by_model, cpus_milli, memory_mib)| Limits {
            gpus,
            gpus_by_model,
            cpus_milli,
            memory_mib,
        },
    )
}

fn cell_quota() -> impl Strategy<Value = CellQuota> {
    let pinned = (text(), text()).prop_map(|(name, cell)| PinnedCell { name, cell });
    (text(), text(), any::<[u32; 2]>(), vec(pinned, 0..3)).prop_map(
        |(level, gpu_model, numbers, pinned)| CellQuota {
            level,
            gpu_model,
            gpus: numbers[0],
            count: numbers[1],
            pinned,
        },
    )
}

fn config() -> impl Strategy<Value = QueueConfig> {
    let order = prop_oneof![
        Just(QueueOrder::Priority),
        Just(QueueOrder::Fifo),
        Just(QueueOrder::Fair),
    ];
    let guarantee = prop_oneof![
        amounts().prop_map(Guarantee::Amounts),
        vec(cell_quota(), 0..3).prop_map(Guarantee::Cells),
    ];
    let numbers = (any::<u32>(), any::<[u64; 3]>());
    (
        order,
        guarantee,
        (limits(), limits()),
        any::<[bool; 4]>(),
        numbers,
    )
        .prop_map(
            |(order, guarantee, (limit, user_limit), flags, (weight, numbers))| QueueConfig {
                weight,
                order,
                guarantee,
                limit,
                user_limit,
                borrow: flags[0],
                preempt_by_priority: flags[1],
                backfill: flags[2],
                reserve_after_ms: numbers[0],
                protected_ms: numbers[1],
                movable: flags[3],
                live_jobs_max: numbers[2],
            },
        )
}

/// Any tree, most of them invalid.
pub(super) fn tree() -> impl Strategy<Value = QueueTree> {
    (
        btree_map(text(), config(), 0..3),
        option::of(any::<u64>()),
        option::of(defragment()),
    )
        .prop_map(|(queues, history_half_life_ms, defragment)| QueueTree {
            queues,
            history_half_life_ms,
            defragment,
        })
}

fn defragment() -> impl Strategy<Value = Defragment> {
    let numbers = (any::<u32>(), any::<u32>(), any::<u32>());
    let spans = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
    (numbers, spans).prop_map(|(numbers, spans)| Defragment {
        moves_max: numbers.0,
        moves_in_flight_max: numbers.1,
        interval_ms: spans.0,
        after_ms: spans.1,
        cost_percent_max: numbers.2,
        restart_ms: spans.2,
        young_ms: spans.3,
    })
}

/// A tree that a cluster accepts in any state.
fn valid_tree() -> impl Strategy<Value = QueueTree> {
    let queue = (
        prop::sample::select(&QUEUES[..]),
        (1..9u32, any::<[bool; 2]>(), option::of(0..9u64)),
    );
    let settings = (option::of(1_000..100_000u64), any::<bool>());
    (vec(queue, 0..4), settings).prop_map(|(queues, (history_half_life_ms, moves))| {
        let queues = queues
            .into_iter()
            .map(|(name, (weight, [borrow, is_fair], gpus))| {
                let order = if is_fair {
                    QueueOrder::Fair
                } else {
                    QueueOrder::default()
                };
                let config = QueueConfig {
                    weight,
                    order,
                    borrow,
                    limit: Limits {
                        gpus,
                        ..Limits::default()
                    },
                    ..QueueConfig::default()
                };
                (name.to_owned(), config)
            });
        let mut queues: BTreeMap<_, _> = queues.collect();
        if queues.contains_key("research/vision") {
            queues.entry("research".to_owned()).or_default();
        }
        QueueTree {
            queues,
            history_half_life_ms,
            defragment: moves.then(Defragment::default),
        }
    })
}

fn topology() -> impl Strategy<Value = Topology> {
    let place =
        (vec(text(), 0..3), vec(text(), 0..3)).prop_map(|(cell, hosts)| CellPlace { cell, hosts });
    let group =
        (text(), vec(any::<u32>(), 0..4)).prop_map(|(level, gpus)| CellGroup { level, gpus });
    let shape = (text(), any::<u32>(), vec(text(), 0..3), vec(group, 0..3)).prop_map(
        |(gpu_model, gpus, hosts, groups)| HostShape {
            gpu_model,
            gpus,
            hosts,
            groups,
        },
    );
    (
        vec(text(), 0..3),
        vec(text(), 0..3),
        vec(place, 0..3),
        vec(shape, 0..3),
    )
        .prop_map(|(above, inside, places, shapes)| Topology {
            above,
            inside,
            places,
            shapes,
        })
}

/// Racks of some of the hosts of [`super::join`].
fn valid_topology() -> impl Strategy<Value = Topology> {
    (1..5u32).prop_map(|racks| {
        let place = |rack| CellPlace {
            cell: vec![format!("rack-{rack}")],
            hosts: vec![format!("node{rack}")],
        };
        let group = |first: u32| CellGroup {
            level: "socket".to_owned(),
            gpus: (first..first + 4).collect(),
        };
        Topology {
            above: vec!["rack".to_owned()],
            inside: vec!["socket".to_owned()],
            places: (0..racks).map(place).collect(),
            shapes: vec![HostShape {
                gpu_model: super::MODEL.to_owned(),
                gpus: 8,
                hosts: Vec::new(),
                groups: vec![group(0), group(4)],
            }],
        }
    })
}

pub(super) fn command() -> impl Strategy<Value = Command> {
    let tree = prop_oneof![tree(), valid_tree()];
    let topology = prop_oneof![topology(), valid_topology()];
    prop_oneof![
        (request(), text(), tree).prop_map(|(request, author, tree)| Command::Config(
            ConfigCommand::ConfigureQueues {
                request,
                author,
                tree: Arc::new(tree),
            }
        )),
        (request(), text(), topology).prop_map(|(request, author, topology)| {
            Command::Config(ConfigCommand::SetTopology {
                request,
                author,
                topology: Arc::new(topology),
            })
        }),
    ]
}
