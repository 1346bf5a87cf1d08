//! Properties of random simulations.

use muster_simulate::report::Report;
use muster_simulate::trace::{Cluster, Outage, TraceJob};
use muster_simulate::{JobEnd, Policy, Scenario, Settings};
use proptest::prelude::*;

use crate::runs::{everything, run};

/// Submission, duration, tasks, GPUs of each, queue.
type Drawn = (u64, u64, u32, u32, u8);

fn jobs(drawn: Vec<Drawn>) -> Vec<TraceJob> {
    let mut jobs: Vec<TraceJob> = drawn
        .into_iter()
        .map(
            |(submit_s, duration_s, tasks, gpus_per_task, queue)| TraceJob {
                submit_ms: submit_s * 500,
                duration_ms: Some(duration_s * 500),
                tasks,
                gpus_per_task,
                queue: Some(format!("queue-{queue}")),
                ..TraceJob::default()
            },
        )
        .collect();
    jobs.sort_by_key(|job| job.submit_ms);
    for (number, job) in jobs.iter_mut().enumerate() {
        job.name = format!("job-{number}");
    }
    jobs
}

fn outages(drawn: Vec<(u32, u64, u64)>) -> Vec<Outage> {
    let outages = drawn.into_iter();
    outages
        .map(|(host, start_s, span_s)| Outage {
            gpu: (start_s % 3 == 0).then_some(host % 4),
            node: format!("node-{host:04}"),
            start_ms: start_s * 500,
            end_ms: (start_s + span_s) * 500,
            cause: String::new(),
        })
        .collect()
}

fn drawn_scenario() -> impl Strategy<Value = Scenario> {
    let job = (0..400u64, 0..120u64, 1..4u32, 0..6u32, 0..3u8);
    let outage = (1..=3u32, 0..600u64, 0..100u64);
    (
        prop::collection::vec(job, 1..60),
        prop::collection::vec(outage, 0..8),
        prop::option::of(1..40u64),
    )
        .prop_map(|(drawn, outage, interval_s)| {
            let settings = Settings {
                checkpoint_interval_ms: interval_s.map(|seconds| seconds * 500),
                audit_every: Some(1),
                ..Settings::default()
            };
            let cluster = Cluster::uniform(3, 4, "V100");
            Scenario::new(cluster, jobs(drawn), &outages(outage), settings)
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_job_ends_and_nothing_is_counted_twice(scenario in drawn_scenario()) {
        for policy in Policy::ALL {
            let outcomes = [run(&scenario, policy)];
            prop_assert!(outcomes[0].audits > 0);
            for record in &outcomes[0].records {
                match record.end {
                    JobEnd::Finished => {
                        let needed_ms = record.duration_ms.unwrap_or(0);
                        prop_assert_eq!(record.done_ms, needed_ms);
                        prop_assert!(record.completion_ms() >= Some(needed_ms + record.lost_ms));
                    }
                    JobEnd::FitsNowhere => prop_assert_eq!(record.first_placed_ms, None),
                    other => prop_assert!(false, "{:?}", other),
                }
            }
            let report = Report::new(&scenario, &outcomes);
            let (all, cluster) = (&report.runs[0].all, &report.runs[0].cluster);
            let held = cluster.utilisation.unwrap_or(0.0) * cluster.makespan_s * 12.0 / 3_600.0;
            let worked = all.done_gpu_hours + all.lost_gpu_hours;
            prop_assert!((held - worked).abs() < 1e-9, "{} GPU-hours held, {} worked", held, worked);
            let bounds = report.runs[0].bounds;
            let is_bounded = all.completion.is_none_or(|spread| spread.mean_s + 1e-6 >= bounds.completion_mean_s);
            prop_assert!(is_bounded, "{:?}", all.completion);
            prop_assert!(cluster.makespan_s >= bounds.makespan_s);
        }
    }

    #[test]
    fn first_come_is_first_served(scenario in drawn_scenario()) {
        let outcome = run(&scenario, Policy::Fifo);
        let placed = outcome.records.iter().filter(|record| record.gpus > 0);
        let placed: Vec<u64> = placed.filter_map(|record| record.first_placed_ms).collect();
        // A job that returns after a fault goes before younger ones; first placements keep their order
        // anyway.
        prop_assert!(placed.is_sorted(), "{:?}", placed);
    }
}

#[test]
fn the_same_input_gives_the_same_report_to_the_byte() {
    let mut number = 7u64;
    let mut draw = |bound: u64| {
        number = number
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (number >> 33) % bound
    };
    let drawn = (0..300)
        .map(|_| {
            let (tasks, gpus) = (1 + draw(3), draw(6));
            let narrow = |value: u64| u32::try_from(value).unwrap();
            (
                draw(2_000),
                draw(200),
                narrow(tasks),
                narrow(gpus),
                u8::try_from(draw(4)).unwrap(),
            )
        })
        .collect();
    let outages = outages(vec![(1, 100, 50), (2, 120, 300), (1, 900, 10)]);
    let cluster = Cluster::uniform(5, 4, "V100");
    let scenario = Scenario::new(cluster, jobs(drawn), &outages, Settings::default());
    let report = || {
        let outcomes = Policy::ALL.map(|policy| run(&scenario, policy));
        everything(&scenario, &outcomes)
    };
    let first = report();
    assert!(first == report());
    let text = String::from_utf8_lossy(&first);
    assert!(text.contains("<svg"), "the page is part of it");
}
