//! Queue changes: immediate effects, and jobs that start sooner or later.

use std::sync::Arc;

use muster_harness::{Cluster, gang};
use muster_model::quota::{Amounts, CellQuota, Guarantee, Limits, QueueConfig, QueueTree};
use muster_model::spec::JobSpec;
use muster_simulate::fork::{Change, Effect};

use crate::fork::{ask, limited, run};

fn tree(queues: &[(&str, QueueConfig)]) -> QueueTree {
    let queues = queues.iter();
    QueueTree {
        queues: queues
            .map(|(name, config)| ((*name).to_owned(), config.clone()))
            .collect(),
        ..QueueTree::default()
    }
}

fn at_most(gpus: u64) -> QueueConfig {
    QueueConfig {
        limit: Limits {
            gpus: Some(gpus),
            ..Limits::default()
        },
        ..QueueConfig::default()
    }
}

fn guaranteed(gpus: u64) -> QueueConfig {
    QueueConfig {
        guarantee: Guarantee::Amounts(Amounts {
            gpus,
            ..Amounts::default()
        }),
        ..QueueConfig::default()
    }
}

fn hosts(count: u32) -> QueueConfig {
    QueueConfig {
        guarantee: Guarantee::Cells(vec![CellQuota {
            level: "host".to_owned(),
            gpu_model: "H100".to_owned(),
            gpus: 8,
            count,
            pinned: Vec::new(),
        }]),
        ..QueueConfig::default()
    }
}

fn in_queue(queue: &str, spec: JobSpec) -> JobSpec {
    JobSpec {
        queue: queue.to_owned(),
        ..spec
    }
}

#[test]
fn a_lower_limit_lists_queues_over_it_and_stops_no_job() {
    let mut cluster = Cluster::with_hosts(2, 8);
    cluster.configure(tree(&[("research", at_most(16))]));
    let first = run(
        &mut cluster,
        in_queue("research", limited(gang("first", 1, 8), 600)),
    );
    let second = run(
        &mut cluster,
        in_queue("research", limited(gang("second", 1, 4), 600)),
    );
    let third = run(
        &mut cluster,
        in_queue("research", limited(gang("third", 2, 8), 600)),
    );
    let change = Change::Queues(Arc::new(tree(&[("research", at_most(8))])));
    let answer = ask(&cluster, &[change]);
    let [research] = answer.queues.as_slice() else {
        panic!("{answer:?}");
    };
    assert_eq!(research.over_limit.gpus, 4);
    // The newest exceeds it; the oldest is within.
    assert_eq!(research.jobs_over_limit.first, [second]);
    assert_eq!(research.jobs_too_large.first, [third]);
    assert_eq!(answer.stops, []);
    let [later] = answer.affected.as_slice() else {
        panic!("{answer:?}");
    };
    assert_eq!((later.id, later.effect), (third.get(), Effect::NotStarted));
    assert!(
        later
            .then
            .waits_for
            .as_ref()
            .unwrap()
            .contains("its limit is 8")
    );
    assert!(first < second);
}

#[test]
fn a_higher_limit_lets_jobs_start_sooner() {
    let mut cluster = Cluster::with_hosts(2, 8);
    cluster.configure(tree(&[("research", at_most(8))]));
    run(
        &mut cluster,
        in_queue("research", limited(gang("first", 1, 8), 600)),
    );
    let second = run(
        &mut cluster,
        in_queue("research", limited(gang("second", 1, 8), 600)),
    );
    let change = Change::Queues(Arc::new(tree(&[("research", at_most(16))])));
    let answer = ask(&cluster, &[change]);
    let [sooner] = answer.affected.as_slice() else {
        panic!("{answer:?}");
    };
    assert_eq!((sooner.id, sooner.effect), (second.get(), Effect::Sooner));
    assert_eq!(sooner.now.as_ref().unwrap().start_ms, Some(600_000));
    assert_eq!(sooner.then.start_ms, Some(0));
    assert!(answer.then.mean_wait_seconds < answer.now.mean_wait_seconds);
}

#[test]
fn a_new_guarantee_reclaims_from_who_borrows() {
    let mut cluster = Cluster::with_hosts(2, 8);
    let before = [("production", guaranteed(0)), ("research", guaranteed(8))];
    cluster.configure(tree(&before));
    for name in ["one", "two"] {
        run(
            &mut cluster,
            in_queue("research", limited(gang(name, 1, 8), 600)),
        );
    }
    let waiting = run(
        &mut cluster,
        in_queue("production", limited(gang("serve", 1, 8), 600)),
    );
    let after = [("production", guaranteed(8)), ("research", guaranteed(0))];
    let answer = ask(&cluster, &[Change::Queues(Arc::new(tree(&after)))]);
    let research = answer.queues.iter().find(|queue| queue.name == "research");
    assert_eq!(research.unwrap().guarantee_lost.gpus, 8);
    let serve = answer.affected.iter().find(|job| job.id == waiting.get());
    assert_eq!(serve.unwrap().effect, Effect::Sooner);
    assert_eq!(serve.unwrap().then.start_ms, Some(0));
    assert_eq!(answer.stops.len(), 1);
    assert_eq!(answer.stops[0].by, Some(waiting.get()));
}

#[test]
fn cells_that_are_taken_leave_opportunistic_work() {
    let mut cluster = Cluster::with_hosts(2, 8);
    cluster.configure(tree(&[("vc", hosts(2))]));
    let first = run(
        &mut cluster,
        in_queue("vc", limited(gang("first", 1, 8), 600)),
    );
    let second = run(
        &mut cluster,
        in_queue("vc", limited(gang("second", 1, 8), 600)),
    );
    let change = Change::Queues(Arc::new(tree(&[("vc", hosts(1))])));
    let answer = ask(&cluster, &[change]);
    let [vc] = answer.queues.as_slice() else {
        panic!("{answer:?}");
    };
    assert_eq!(vc.cells_lost, 1);
    assert_eq!(vc.downgraded.first, [second]);
    assert_eq!(answer.stops, []);
    let [downgraded] = answer.affected.as_slice() else {
        panic!("{answer:?}");
    };
    assert_eq!(downgraded.effect, Effect::Downgraded);
    assert_ne!(downgraded.id, first.get());
}
