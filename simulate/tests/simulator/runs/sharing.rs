//! Virtual clusters that share compared with each alone, and other variations between runs.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use muster_model::quota::{Amounts, Guarantee, QueueConfig, QueueTree};
use muster_simulate::trace::{Cluster, Quota, TraceJob};
use muster_simulate::{
    JobEnd, JobInformation, Outcome, Policy, Rules, Scenario, Settings, TimeLimits,
};
use proptest::prelude::*;

use crate::runs::{in_queue, job, outage_of_gpu, run, scenario, small, times_s};

/// Hosts with 4 GPUs that each virtual cluster is guaranteed.
const HOSTS: [(&str, u64); 3] = [("a", 2), ("b", 3), ("c", 1)];

fn quotas() -> Vec<Quota> {
    let quota = |(queue, hosts): (&str, u64)| Quota {
        queue: queue.to_owned(),
        from_date: None,
        gpus: 4 * hosts,
    };
    HOSTS.map(quota).into()
}

/// Submission, duration, tasks, GPUs of each, virtual cluster.
type Drawn = (u64, u64, u32, u32, usize);

fn drawn_jobs(drawn: &[Drawn]) -> Vec<TraceJob> {
    let mut jobs: Vec<TraceJob> = drawn
        .iter()
        .map(|(submit_s, duration_s, tasks, gpus, cluster)| {
            let (queue, hosts) = HOSTS[*cluster];
            // No job requests more than its virtual cluster has.
            let tasks = u64::from(*tasks).min(hosts);
            let tasks = u32::try_from(tasks).unwrap();
            let asking = TraceJob {
                gpus_per_task: *gpus,
                ..job("", *submit_s, *duration_s, tasks)
            };
            in_queue(queue, asking)
        })
        .collect();
    jobs.sort_by_key(|job| job.submit_ms);
    for (number, job) in jobs.iter_mut().enumerate() {
        job.name = format!("job-{number}");
    }
    jobs
}

fn shared(jobs: Vec<TraceJob>, rules: Rules) -> Scenario {
    let settings = Settings {
        rules,
        audit_every: Some(1),
        ..Settings::default()
    };
    let cluster = Cluster::uniform(6, 4, "V100");
    Scenario::new(cluster, jobs, &[], settings).with_quotas(quotas())
}

/// First placement and end of each job of a virtual cluster.
fn times_of(outcome: &Outcome, queue: Option<usize>) -> Vec<(Option<u64>, Option<u64>)> {
    let records = outcome.records.iter();
    records
        .filter(|record| queue.is_none_or(|queue| record.queue == queue))
        .map(|record| (record.first_placed_ms, record.finished_ms))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// HiveD's promise to the second: a job with guaranteed cells waits as if its virtual cluster were
    /// alone.
    #[test]
    fn with_cells_and_nothing_lent_every_job_runs_as_if_its_cluster_were_alone(
        drawn in prop::collection::vec((0..200u64, 1..80u64, 1..4u32, 0..5u32, 0..3usize), 1..80),
        strict in any::<bool>(),
    ) {
        let rules = Rules { borrow: false, strict, ..Rules::default() };
        let shared = shared(drawn_jobs(&drawn), rules);
        let together = run(&shared, Policy::Cells);
        for (cluster, _) in HOSTS {
            let alone = shared.alone(cluster).unwrap();
            if alone.jobs() == 0 {
                continue;
            }
            let alone = run(&alone, Policy::Cells);
            let present: std::collections::BTreeSet<usize> = drawn.iter().map(|job| job.4).collect();
            let position = present.iter().position(|present| HOSTS[*present].0 == cluster);
            prop_assert_eq!(times_of(&together, position), times_of(&alone, None), "{}", cluster);
        }
    }

    #[test]
    fn every_job_ends_with_any_borrowing_known_limits_and_checkpoints(
        drawn in prop::collection::vec((0..200u64, 1..80u64, 1..4u32, 0..5u32, 0..3usize), 1..60),
        (borrow, strict, alike, checkpoints) in any::<(bool, bool, bool, bool)>(),
        step_s in prop::option::of(0..60u64),
    ) {
        let mut scenario = shared(drawn_jobs(&drawn), Rules { borrow, strict, ..Rules::default() });
        let step_ms = step_s.map(|seconds| NonZeroU64::new(seconds * 1_000));
        let limits = step_ms.map_or(TimeLimits::None, |step_ms| {
            step_ms.map_or(TimeLimits::Exact, |step_ms| TimeLimits::RoundedUp { step_ms })
        });
        scenario = scenario.with_known(JobInformation { limits, alike, checkpoints });
        for policy in [Policy::Backfill, Policy::Capacity, Policy::Cells] {
            let outcome = run(&scenario, policy);
            let finished = outcome.records.iter().all(|record| record.end == JobEnd::Finished);
            prop_assert!(finished, "{policy}: {:?}", outcome.records);
        }
    }
}

#[test]
fn hosts_of_one_gang_are_distinguished_by_its_tasks() {
    // The gangs of `b` are on the same hosts with as much left, so their oldest job is the same: which of
    // these hosts a task of 1 GPU takes decides when one of 4 finds a whole host. `a` shifts their numbers.
    let drawn = [
        (17, 25, 2, 3, 1),
        (63, 36, 1, 1, 1),
        (4, 14, 1, 2, 0),
        (36, 1, 1, 4, 1),
        (63, 58, 1, 1, 1),
        (63, 47, 1, 1, 1),
        (18, 46, 3, 1, 1),
        (18, 58, 2, 2, 1),
        (18, 46, 2, 1, 1),
    ];
    let rules = Rules {
        borrow: false,
        strict: false,
        ..Rules::default()
    };
    let shared = shared(drawn_jobs(&drawn), rules);
    let alone = shared.alone("b").unwrap();
    let together = run(&shared, Policy::Cells);
    assert_eq!(
        times_of(&together, Some(1)),
        times_of(&run(&alone, Policy::Cells), None)
    );
}

#[test]
fn a_quota_in_gpus_does_not_protect_against_fragmentation_by_others() {
    // `a` may have 8 GPUs of 24 and uses none. The others, within their quotas of 12 and 4, hold three of
    // four GPUs of some hosts, one after the other, so that no two whole hosts are left.
    let mut jobs: Vec<TraceJob> = (0..5)
        .map(|number| {
            in_queue(
                if number < 4 { "b" } else { "c" },
                small(&format!("piece-{number}"), 0, 100, 3),
            )
        })
        .collect();
    jobs.push(in_queue("a", job("whole", 1, 10, 2)));
    let rules = Rules {
        borrow: false,
        strict: false,
        ..Rules::default()
    };
    let shared = shared(jobs, rules);
    let placed = |policy| times_s(&run(&shared, policy))[5].0;
    assert_eq!(
        placed(Policy::Capacity),
        Some(100),
        "no two hosts are whole"
    );
    assert_eq!(placed(Policy::Cells), Some(1), "its cells are kept for it");
}

#[test]
fn a_queue_that_does_not_borrow_waits_beside_idle_hosts() {
    let jobs = vec![
        in_queue("c", job("first", 0, 50, 1)),
        in_queue("c", job("second", 0, 50, 1)),
    ];
    for policy in [Policy::Capacity, Policy::Cells] {
        for (borrow, second_s) in [(true, 0), (false, 50)] {
            let rules = Rules {
                borrow,
                strict: false,
                ..Rules::default()
            };
            let outcome = run(&shared(jobs.clone(), rules), policy);
            assert_eq!(times_s(&outcome)[1].0, Some(second_s), "{policy}, {borrow}");
        }
    }
}

#[test]
fn whom_to_stop_is_decided_by_the_checkpoints_that_were_committed() {
    // Both of `b` hold a host beyond its quota; `old` has a checkpoint 1 s before `a` comes for its
    // guarantee, `young` none yet.
    let jobs = vec![
        in_queue("b", job("kept", 0, 500, 3)),
        in_queue("b", job("old", 0, 500, 1)),
        in_queue("b", job("young", 70, 500, 1)),
        in_queue("c", job("other", 70, 500, 1)),
        in_queue("a", job("owner", 121, 10, 1)),
    ];
    let stopped = |checkpoints| {
        let settings = Settings {
            checkpoint_interval_ms: Some(60_000),
            ..Settings::default()
        };
        let cluster = Cluster::uniform(6, 4, "V100");
        let scenario = Scenario::new(cluster, jobs.clone(), &[], settings)
            .with_quotas(quotas())
            .with_known(JobInformation {
                checkpoints,
                ..JobInformation::default()
            });
        let outcome = run(&scenario, Policy::Capacity);
        let stopped = outcome
            .records
            .iter()
            .position(|record| record.preemptions > 0);
        stopped.map(|position| {
            (
                jobs[position].name.clone(),
                outcome.records[position].lost_ms,
            )
        })
    };
    assert_eq!(stopped(true), Some(("old".to_owned(), 1_000)));
    assert_eq!(stopped(false), Some(("young".to_owned(), 51_000)));
}

#[test]
fn jobs_wait_in_the_queues_of_a_tree() {
    let guaranteed = |gpus| QueueConfig {
        guarantee: Guarantee::Amounts(Amounts {
            gpus,
            ..Amounts::default()
        }),
        borrow: false,
        ..QueueConfig::default()
    };
    let queues = [
        ("team".to_owned(), guaranteed(8)),
        ("team/red".to_owned(), guaranteed(4)),
    ];
    let tree = |queues: &[(String, QueueConfig)]| QueueTree {
        queues: queues.iter().cloned().collect(),
        history_half_life_ms: None,
        defragment: None,
    };
    let jobs = vec![
        in_queue("red", job("a", 0, 10, 1)),
        in_queue("red", job("b", 0, 10, 1)),
    ];
    let scenario = scenario(jobs, &[], Settings::default());
    let outcome = run(&scenario.clone().with_tree(tree(&queues)), Policy::Tree);
    assert_eq!(times_s(&outcome)[1].0, Some(10), "red does not borrow");
    let beyond = [("team".to_owned(), guaranteed(12))];
    let refused = muster_simulate::simulate(
        &scenario.with_tree(tree(&beyond)),
        Policy::Tree,
        &mut |_| {},
    );
    let error = refused.map(|_| ()).unwrap_err();
    assert!(
        matches!(error, muster_simulate::SimulateError::Setup { .. }),
        "12 GPUs of 8 are guaranteed: {error}"
    );
}

#[test]
fn a_gpu_fault_stops_only_the_job_that_holds_the_gpu() {
    // The two tasks of 2 GPUs share the first host; the fault takes its GPU 0 for a while.
    let outages = [outage_of_gpu("n1", 0, 20, 40)];
    let jobs = vec![small("hit", 0, 30, 2), small("spared", 0, 30, 2)];
    let settings = Settings {
        checkpoint_interval_ms: Some(1_000),
        audit_every: Some(1),
        ..Settings::default()
    };
    let outcome = run(&scenario(jobs, &outages, settings), Policy::Fifo);
    let interruptions: BTreeMap<usize, u32> = (0..)
        .zip(outcome.records.iter().map(|record| record.interruptions))
        .collect();
    assert_eq!(interruptions, BTreeMap::from([(0, 1), (1, 0)]));
    assert_eq!(times_s(&outcome), [(Some(0), Some(30)); 2]);
}
