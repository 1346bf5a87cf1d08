//! How long a planning round takes: the bounds are generous because test machines are busy; the figures
//! are written to standard error (`--nocapture`).
#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "measures the core from outside"
)]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_core::command::{Command, Placement, Standing, TaskPlacement};
use muster_core::ids::{HostId, TaskIndex, UnitIndex};
use muster_core::plan::{Budget, Plan, plan};
use muster_core::quota::{QueueConfig, QueueOrder, QueueTree};
use muster_core::state::State;
use muster_core::testing::{Cluster, gang, gpu_uuid, single};
use muster_core::time::TimeMs;

/// A cluster whose commands are not audited.
fn cluster(hosts: u32) -> Cluster {
    let mut cluster = Cluster::with_hosts(hosts, 8);
    cluster.audited = false;
    cluster
}

/// Plans three times, reports the fastest, and fails over the bound.
fn measure(what: &str, state: &State, now: TimeMs, bound: Duration) -> Plan {
    let mut fastest = Duration::MAX;
    let mut planned = Plan::default();
    for _ in 0..3 {
        let begin = Instant::now();
        planned = plan(state, now, Budget::default());
        fastest = fastest.min(begin.elapsed());
    }
    let placements = planned.placements().count();
    writeln!(
        std::io::stderr(),
        "{what}: {fastest:?}, {placements} placements"
    )
    .expect("standard error is open in tests");
    assert!(fastest < bound, "{what}: {fastest:?} is over {bound:?}");
    planned
}

#[test]
fn a_gang_of_1024_tasks_with_8_gpus_each_is_decided_in_50_ms() {
    let mut cluster = cluster(2_000);
    cluster.submit(gang("train", 1_024, 8));
    let planned = measure(
        "gang of 1,024 x 8 over 2,000 hosts",
        &cluster.state,
        cluster.now,
        Duration::from_millis(50),
    );
    assert_eq!(planned.placements().count(), 1);
}

#[test]
fn single_gpu_tasks_are_placed_by_the_thousand() {
    let mut cluster = cluster(5_000);
    cluster.submit(single("sweep", 100_000, 1));
    let planned = measure(
        "4,096 single GPUs over 5,000 hosts",
        &cluster.state,
        cluster.now,
        Duration::from_millis(60),
    );
    assert_eq!(planned.placements().count(), Budget::default().steps_max);
}

#[test]
fn gangs_of_eight_are_placed_by_the_thousand() {
    let mut cluster = cluster(5_000);
    for number in 0..2_000 {
        cluster.submit(gang(&format!("train-{number}"), 8, 1));
    }
    let planned = measure(
        "2,000 gangs of 8 x 1 over 5,000 hosts",
        &cluster.state,
        cluster.now,
        Duration::from_millis(100),
    );
    assert_eq!(planned.placements().count(), 2_000);
}

#[test]
fn a_full_cluster_costs_next_to_nothing_whatever_waits() {
    let mut cluster = cluster(1_000);
    cluster.submit(single("sweep", 8_000, 1));
    while let planned = plan(&cluster.state, cluster.now, Budget::default())
        && !planned.steps.is_empty()
    {
        for step in planned.steps {
            cluster.apply(&step);
        }
    }
    for number in 0..100_000 {
        cluster.submit(single(&format!("wait-{number}"), 1, 1));
    }
    let planned = measure(
        "full cluster, 100,000 waiting jobs",
        &cluster.state,
        cluster.now,
        Duration::from_millis(2),
    );
    assert_eq!(planned.placements().count(), 0);
}

/// 1,000 shapes wait, of 16 users in a fair queue: single tasks and gangs, none of which fits.
#[test]
fn a_thousand_shapes_cost_a_thousand_looks() {
    let mut cluster = cluster(1_000);
    let mut queues = BTreeMap::new();
    queues.insert("default".to_owned(), QueueConfig::default());
    let fair = QueueConfig {
        order: QueueOrder::Fair,
        ..QueueConfig::default()
    };
    queues.insert("fair".to_owned(), fair);
    cluster.configure(QueueTree {
        queues,
        ..QueueTree::default()
    });
    cluster.submit(single("sweep", 8_000, 1));
    while let planned = plan(&cluster.state, cluster.now, Budget::default())
        && !planned.steps.is_empty()
    {
        for step in planned.steps {
            cluster.apply(&step);
        }
    }
    for number in 0..100_000u32 {
        let shape = number % 1_000;
        let mut spec = match shape % 2 {
            0 => single("wait", 1, 1 + shape % 8),
            _ => gang("wait", 1 + shape % 64, 1 + shape % 8),
        };
        spec.groups[0].resources.memory_mib = 1_024 + u64::from(shape);
        if number % 4 == 0 {
            spec.queue = "fair".to_owned();
            spec.user = format!("user-{}", number % 16);
        }
        cluster.submit(spec);
    }
    let planned = measure(
        "full cluster, 100,000 waiting jobs of 1,000 shapes",
        &cluster.state,
        cluster.now,
        Duration::from_millis(60),
    );
    assert_eq!(planned.placements().count(), 0);
    assert_eq!(planned.waiting.values().sum::<u64>(), 100_000);
}

/// CPUs run out first on every host: 4 of 8 GPUs of the used hosts can serve nobody.
#[test]
fn stranded_gpus_are_looked_at_once_a_round() {
    let mut cluster = cluster(5_000);
    let mut spec = single("greedy", 16_000, 1);
    spec.groups[0].resources.cpus_milli = 16_000;
    cluster.submit(spec);
    for _ in 0..2 {
        for step in plan(&cluster.state, cluster.now, Budget::default()).steps {
            cluster.apply(&step);
        }
    }
    let planned = measure(
        "4,096 more beside 2,048 stranded hosts",
        &cluster.state,
        cluster.now,
        Duration::from_millis(80),
    );
    assert_eq!(planned.placements().count(), Budget::default().steps_max);
}

/// 8,192 hosts with a low-priority task on nine of ten GPUs, all of which have run for a while.
fn busy_cluster() -> Cluster {
    let mut cluster = cluster(8_192);
    let queue = QueueConfig {
        preempt_by_priority: true,
        ..QueueConfig::default()
    };
    cluster.configure(QueueTree {
        queues: [("default".to_owned(), queue)].into(),
        history_half_life_ms: None,
    });
    let held = (0..65_536u32).filter(|gpu| (gpu * 7 + gpu / 8) % 10 != 0);
    let held: Vec<u32> = held.collect();
    let count = u32::try_from(held.len()).expect("there are 65,536 GPUs");
    let job = cluster.submit(single("old", count, 1));
    for (unit, gpu) in (0..).zip(held) {
        let placed = cluster.apply(&Command::Place(Placement {
            leader: cluster.leader(),
            job,
            unit: UnitIndex(unit),
            standing: Standing::Share,
            tasks: Arc::from([TaskPlacement {
                task: TaskIndex(unit),
                host: HostId(gpu / 8 + 1),
                gpus: vec![gpu_uuid(gpu / 8 + 1, gpu % 8)],
            }]),
        }));
        assert!(placed.result.is_ok(), "{:?}", placed.result);
    }
    cluster.start_all(job);
    cluster.wait(3_600_000);
    cluster
}

#[test]
fn a_preemption_at_65_536_gpus_is_decided_in_10_ms() {
    let mut cluster = busy_cluster();
    for (tasks, gpus) in [(1, 8), (8, 8), (64, 4)] {
        let mut spec = gang("urgent", tasks, gpus);
        spec.priority = 5;
        let job = cluster.submit(spec);
        let what = format!("{tasks} x {gpus} GPUs at the cost of others");
        let bound = Duration::from_millis(10);
        let planned = measure(&what, &cluster.state, cluster.now, bound);
        assert_eq!(planned.claims().count(), 1);
        let request = cluster.next_request();
        cluster.apply(&Command::CancelJob {
            request,
            job,
            author: "grace".to_owned(),
            reason: String::new(),
        });
    }
}
