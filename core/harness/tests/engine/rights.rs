//! Tests of the preemption rights of one job over another.

use std::sync::Arc;

use muster_engine::rights::{Preemptor, Protection, Right, Rights, Subject, lost_work_ms};
use muster_harness::{Cluster, gang};
use muster_model::command::{
    AllocationBasis, CheckpointCommand, CheckpointCommit, Command, ConfigCommand, Placement,
};
use muster_model::ids::{JobId, UnitIndex};
use muster_model::quota::{Amounts, Guarantee, QueueConfig, QueueTree};
use muster_model::topology::CellId;

/// Four hosts of eight GPUs; queues a (guaranteed 16 GPUs), b (8), and c (none, preempts by priority).
fn cluster() -> Cluster {
    let mut cluster = Cluster::with_hosts(4, 8);
    let queue = |gpus: u64, preempt_by_priority: bool, protected_ms: u64| QueueConfig {
        guarantee: Guarantee::Amounts(Amounts {
            gpus,
            ..Amounts::default()
        }),
        preempt_by_priority,
        protected_ms,
        ..QueueConfig::default()
    };
    let tree = QueueTree {
        queues: [
            ("a", queue(16, false, 0)),
            ("b", queue(8, false, 60_000)),
            ("c", queue(0, true, 0)),
        ]
        .map(|(name, config)| (name.to_owned(), config))
        .into(),
        history_half_life_ms: None,
        defragment: None,
    };
    let request = cluster.next_request();
    let applied = cluster.apply(&Command::Config(ConfigCommand::ConfigureQueues {
        request,
        author: "grace".to_owned(),
        tree: Arc::new(tree),
    }));
    assert!(applied.result.is_ok(), "{:?}", applied.result);
    cluster
}

/// A running gang of `tasks` tasks with eight GPUs each.
fn run(cluster: &mut Cluster, queue: &str, tasks: u32, allocation_basis: AllocationBasis) -> JobId {
    let mut spec = gang(queue, tasks, 8);
    spec.queue = queue.to_owned();
    spec.scheduling.opportunistic = allocation_basis == AllocationBasis::Opportunistic;
    let job = cluster.submit(spec);
    let Some(Command::Place(placement)) = cluster.first_fit(job, UnitIndex(0)) else {
        panic!("there is no room for {queue}");
    };
    let placement = Placement {
        basis: allocation_basis,
        ..placement
    };
    cluster.apply(&Command::Place(placement)).result.unwrap();
    cluster.start_all(job);
    job
}

/// The rights of a gang of `tasks` tasks over the attempts of these jobs, taken one after the other.
fn asked(
    cluster: &mut Cluster,
    queue: &str,
    tasks: u32,
    priority: i32,
    allocation_basis: &AllocationBasis,
    victims: &[JobId],
) -> Vec<Result<Right, Protection>> {
    let mut spec = gang("asks", tasks, 8);
    spec.queue = queue.to_owned();
    spec.priority = priority;
    let job = cluster.submit(spec);
    let mut amounts = Amounts::default();
    let record = cluster.state.job(job).unwrap();
    amounts.add_tasks(&record.spec.groups[0].resources, "H100", u64::from(tasks));
    let preemptor = Preemptor {
        job: record,
        unit: UnitIndex(0),
        allocation_basis,
        amounts: &amounts,
    };
    let mut rights = Rights::of(&cluster.state, preemptor);
    let mut answers = Vec::new();
    for victim in victims {
        let attempt = cluster.attempt(*victim, UnitIndex(0)).unwrap();
        let subject = Subject::attempt(cluster.state.job(*victim).unwrap(), attempt);
        let answer = rights.over(&subject);
        if answer.is_ok() {
            rights.take(&subject);
        }
        answers.push(answer);
    }
    answers
}

#[test]
fn a_guarantee_is_reclaimed_until_the_other_queues_hold_only_theirs() {
    let mut cluster = cluster();
    let jobs: Vec<JobId> = (0..3)
        .map(|_| run(&mut cluster, "b", 1, AllocationBasis::Share))
        .collect();
    let young = asked(&mut cluster, "a", 2, 0, &AllocationBasis::Share, &jobs[..1]);
    assert!(
        matches!(young[0], Err(Protection::Young { .. })),
        "{young:?}"
    );
    cluster.wait(60_000);
    // Time advances only with a command.
    let c = run(&mut cluster, "c", 1, AllocationBasis::Share);
    let answers = asked(&mut cluster, "a", 2, 0, &AllocationBasis::Share, &jobs);
    let within = Protection::WithinGuarantee {
        queue: "b".to_owned(),
    };
    assert_eq!(
        answers,
        [Ok(Right::Reclaim), Ok(Right::Reclaim), Err(within)]
    );
    // Not more than the guarantee, and not by queues without one.
    let over = |queue: &str| Protection::OverGuarantee {
        queue: queue.to_owned(),
    };
    let answers = asked(&mut cluster, "a", 3, 0, &AllocationBasis::Share, &jobs[..1]);
    assert_eq!(answers, [Err(over("a"))]);
    let answers = asked(&mut cluster, "b", 1, 9, &AllocationBasis::Share, &[c]);
    assert_eq!(answers, [Err(over("b"))]);
}

#[test]
fn priorities_count_inside_a_queue_configured_for_it() {
    let mut cluster = cluster();
    let a = run(&mut cluster, "a", 1, AllocationBasis::Share);
    let c = run(&mut cluster, "c", 1, AllocationBasis::Share);
    let ask = |cluster: &mut Cluster, queue, priority, victim| {
        asked(
            cluster,
            queue,
            1,
            priority,
            &AllocationBasis::Share,
            &[victim],
        )
        .remove(0)
    };
    assert_eq!(ask(&mut cluster, "c", 1, c), Ok(Right::Priority));
    assert_eq!(ask(&mut cluster, "c", 0, c), Err(Protection::SameQueue));
    assert_eq!(ask(&mut cluster, "a", 1, a), Err(Protection::SameQueue));
}

#[test]
fn opportunistic_work_is_preempted_first_and_preempts_none() {
    let mut cluster = cluster();
    let idle = run(&mut cluster, "a", 1, AllocationBasis::Opportunistic);
    let c = run(&mut cluster, "c", 1, AllocationBasis::Share);
    let answers = asked(&mut cluster, "c", 4, 0, &AllocationBasis::Share, &[idle]);
    assert_eq!(answers, [Ok(Right::Opportunistic)]);
    let answers = asked(
        &mut cluster,
        "a",
        1,
        0,
        &AllocationBasis::Opportunistic,
        &[c],
    );
    assert_eq!(answers, [Err(Protection::PreemptorOpportunistic)]);
}

#[test]
fn a_bound_cell_may_preempt_attempts_inside_it_only() {
    let mut cluster = cluster();
    let first = run(&mut cluster, "c", 1, AllocationBasis::Share);
    let second = run(&mut cluster, "c", 1, AllocationBasis::Share);
    let host = cluster.hosts_of(first, UnitIndex(0))[0];
    let cell = AllocationBasis::Cells(vec![CellId::Host(host)]);
    let answers = asked(&mut cluster, "a", 1, 0, &cell, &[first, second]);
    assert_eq!(answers, [Ok(Right::Cells), Err(Protection::OtherCells)]);
}

#[test]
fn lost_work_counts_from_the_newest_checkpoint() {
    let mut cluster = cluster();
    let job = run(&mut cluster, "a", 2, AllocationBasis::Share);
    let lost = |cluster: &Cluster| {
        let unit = cluster.state.job(job).unwrap().unit(UnitIndex(0)).unwrap();
        lost_work_ms(unit, unit.attempt.as_deref().unwrap(), cluster.now)
    };
    cluster.wait(1_000);
    assert_eq!(lost(&cluster), 16_000);
    let epoch = cluster.attempt(job, UnitIndex(0)).unwrap().epoch;
    let commit = Command::Checkpoint(CheckpointCommand::CommitCheckpoint {
        leader: cluster.leader(),
        job,
        unit: UnitIndex(0),
        checkpoint: CheckpointCommit {
            epoch,
            step: 1,
            path: "/checkpoints/1".to_owned(),
            size_bytes: 0,
            digest: String::new(),
            save_ms: None,
        },
    });
    cluster.apply(&commit).result.unwrap();
    cluster.wait(10);
    assert_eq!(lost(&cluster), 160);
}
