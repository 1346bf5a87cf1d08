//! Tests of whole clusters under faults.

use std::collections::BTreeSet;

use super::*;
use crate::sim::faults::fault::{Fault, NodeRef, ScheduledFault};
use crate::sim::faults::plan::{FaultSelection, Numbers, Plan};
use crate::sim::record::SceneKind;
use crate::sim::scale::{Scale, Tempo};

fn options(seed: u64, mutant: Option<Mutant>) -> WorldOptions {
    WorldOptions {
        seed,
        faults_s: 60,
        mutant,
        ..WorldOptions::default()
    }
}

#[test]
fn a_cluster_under_faults_keeps_every_promise() {
    for seed in 0..6 {
        let report = simulate(&options(seed, None)).unwrap();
        assert!(report.violations.is_empty(), "{report}");
        assert!(report.acknowledged > 0 && report.succeeded > 0, "{report}");
    }
}

/// All replicas are lost with their disks while tasks unknown to any backup run.
#[test]
fn a_cluster_that_is_restored_keeps_every_promise_but_what_came_after_its_backup() {
    let mut restored = 0;
    let mut unremembered = 0;
    let loses = |seed: &u64| {
        Plan::of(*seed, 60, Scale::default(), &FaultSelection::All)
            .shape
            .recovery_machines
            > 0
    };
    for seed in (0..).filter(loses).take(6) {
        let report = simulate(&options(seed, None)).unwrap();
        assert!(report.violations.is_empty(), "{report}");
        restored += report.coverage.times(Situation::Restored);
        unremembered += report.coverage.times(Situation::RanUnknownToBackup);
    }
    assert!(
        restored >= 4 && unremembered > 0,
        "{restored}, {unremembered}"
    );
}

#[test]
fn replicas_that_do_not_come_together_again_are_noticed() {
    for (is_founded, kinds) in [(true, &[][..]), (false, &["recovery"][..])] {
        let checkers = Checkers::default();
        let world = async {
            let mut world = World::new(options(1, None), checkers.clone());
            if is_founded {
                world.found().await.unwrap();
            }
            world.recover(Instant::now()).await;
        };
        run_world(1, world).unwrap();
        let found: Vec<_> = checkers.with(|seen| seen.found().map(|it| it.kind()).collect());
        assert_eq!(found, kinds);
    }
}

#[test]
fn the_same_seed_gives_the_same_world() {
    let first = simulate(&options(77, None)).unwrap();
    assert_eq!(first, simulate(&options(77, None)).unwrap());
}

#[test]
fn a_record_changes_nothing_and_has_everything() {
    let options = WorldOptions {
        faults_s: 20,
        ..options(3, None)
    };
    let bare = simulate(&options).unwrap();
    let (report, record) = record(&options).unwrap();
    assert_eq!(bare, report);
    for kind in [
        SceneKind::Fault,
        SceneKind::Leader,
        SceneKind::Command,
        SceneKind::Event,
        SceneKind::Call,
        SceneKind::Answer,
        SceneKind::Task,
    ] {
        assert!(record.scenes().iter().any(|it| it.kind == kind), "{kind:?}");
    }
    let last = record.state(muster_model::ids::Revision(report.revision));
    assert_eq!(last.map(State::state_hash), Some(report.state_hash));
}

/// Leaving out faults changes nothing before the first of them.
#[test]
fn the_first_faults_alone_give_the_same_beginning() {
    let whole = WorldOptions {
        faults_s: 20,
        ..options(5, None)
    };
    let plan = Plan::of(5, 20, Scale::default(), &FaultSelection::All);
    let half = plan.faults.len() / 2;
    let numbers = plan.faults[..half]
        .iter()
        .map(|scheduled| scheduled.number)
        .collect();
    let some = WorldOptions {
        faults: FaultSelection::Only(Numbers(numbers)),
        ..whole.clone()
    };
    let end_ms = plan.faults[half].at_ms;
    let until = |options: &WorldOptions| {
        let (_, record) = record(options).unwrap();
        let scenes = record.scenes().iter().cloned();
        scenes
            .take_while(|scene| scene.at_ms < end_ms)
            .collect::<Vec<_>>()
    };
    assert_eq!(until(&whole), until(&some));
}

/// A machine reserved for a later replica has no node that could be cut off.
#[test]
fn who_is_not_there_yet_is_cut_off_in_vain() {
    let plans = (0..).map(|seed| Plan::of(seed, 20, Scale::default(), &FaultSelection::All));
    let (seed, mut plan) = (0..)
        .zip(plans)
        .find(|(_, plan)| plan.shape.spares > 0 && plan.shape.recovery_machines == 0)
        .unwrap();
    let (there, vacant) = (
        NodeRef::Replica(1),
        NodeRef::Replica(plan.shape.replicas + 1),
    );
    let cut = |from, to| Fault::Cut { from, to };
    let faults = [
        Fault::Isolate(there),
        Fault::Isolate(vacant),
        cut(there, vacant),
        cut(vacant, there),
    ];
    let faults = (1..).zip(faults).map(|(number, fault)| ScheduledFault {
        number,
        at_ms: 1_000,
        fault,
    });
    plan.faults = faults.collect();
    let options = WorldOptions {
        faults_s: 5,
        faults: FaultSelection::Script(Arc::new(plan)),
        ..options(seed, None)
    };
    let report = simulate(&options).unwrap();
    assert_eq!(report.faults, [("replica isolated", 1)].into());
    assert_eq!(report.skipped, 3);
}

/// A cluster of one replica has no peers to agree with, and still holds every invariant.
#[test]
fn clusters_of_every_size_are_drawn() {
    let sizes: BTreeSet<u32> = (0..20)
        .map(|seed| {
            Plan::of(seed, 60, Scale::default(), &FaultSelection::All)
                .shape
                .replicas
        })
        .collect();
    assert_eq!(sizes, [1, 3, 5].into());
}

/// Tests that take minutes: `make soak` runs them.
mod soak {
    use super::*;

    /// Ten minutes of forty hosts under jobs and faults as in production.
    #[test]
    fn a_larger_cluster_of_production_keeps_every_promise() {
        let options = WorldOptions {
            faults_s: 600,
            jobs: Some(4),
            scale: Scale {
                hosts: Some(40),
                tempo: Tempo::Production,
            },
            ..options(2, None)
        };
        let report = simulate(&options).unwrap();
        assert!(report.violations.is_empty(), "{report}");
        assert!(
            report.acknowledged >= 12 && report.succeeded > 0,
            "{report}"
        );
    }
}
