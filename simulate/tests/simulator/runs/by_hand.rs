//! Traces small enough to calculate by hand.

use muster_simulate::report::Report;
use muster_simulate::trace::{Ending, TraceJob};
use muster_simulate::{JobEnd, Policy, Settings};

use crate::runs::{in_queue, job, outage_of_gpu, run, scenario, small, times_s};

/// `a` and `b` fill a host each; `c` needs both hosts; `d` is tiny and comes last.
fn four_jobs() -> Vec<TraceJob> {
    vec![
        in_queue("red", job("a", 0, 10, 1)),
        in_queue("red", job("b", 0, 20, 1)),
        in_queue("red", job("c", 1, 5, 2)),
        in_queue("blue", small("d", 2, 1, 1)),
    ]
}

#[test]
fn first_come_first_served_to_the_second() {
    let scenario = scenario(four_jobs(), &[], Settings::default());
    let outcomes = [run(&scenario, Policy::Fifo)];
    // `c` waits for `b`'s host until 20; `d` is behind it in strict order, and then behind it on the hosts.
    let expected = [(0, 10), (0, 20), (20, 25), (25, 26)].map(|(at, end)| (Some(at), Some(end)));
    assert_eq!(times_s(&outcomes[0]), expected);

    let report = Report::new(&scenario, &outcomes);
    let (all, cluster) = (&report.runs[0].all, &report.runs[0].cluster);
    let delay = all.delay.unwrap();
    // Delays are 0, 0, 19 and 23 s; completions 10, 20, 24 and 24 s.
    assert_eq!((delay.mean_s, delay.p50_s, delay.p99_s), (10.5, 0.0, 23.0));
    assert_eq!(all.completion.unwrap().mean_s, 19.5);
    assert_eq!(cluster.makespan_s, 26.0);
    // 40 + 80 + 40 + 1 of 8 x 26 GPU-seconds.
    assert_eq!(cluster.utilisation, Some(161.0 / 208.0));
    // At least one job waits from 1 to 25: a and b hold 8 GPUs until 10, b holds 4 until 20, then c holds
    // 8.
    assert_eq!(cluster.waiting_share, Some(24.0 / 26.0));
    assert_eq!(
        cluster.utilisation_while_waiting,
        Some((9.0 * 8.0 + 10.0 * 4.0 + 5.0 * 8.0) / (24.0 * 8.0))
    );
    // A whole host is free from 10 to 20, which suits `c`; from 25 on `d` leaves 3 GPUs of its host.
    assert_eq!(cluster.fragmentation_head, Some(0.0));
    assert_eq!(cluster.fragmentation_whole_host, Some(3.0 / 47.0));
    // Slowdowns: red 1, 1 and 24/10; blue 24/10 (runs of less than 10 s count as 10).
    let (red, blue) = (4.4 / 3.0, 2.4);
    let jain = (red + blue) * (red + blue) / (2.0 * (red * red + blue * blue));
    assert!((cluster.fairness.unwrap() - jain).abs() < 1e-9);
    // The work spread evenly (161/8 s) is longer than b alone.
    assert_eq!(report.runs[0].bounds.makespan_s, 20.125);
    let bounds = report.runs[0].bounds;
    assert_eq!(bounds.run_mean_s, 9.0);
    // One machine of 8 GPUs, the smallest total work first: a in 0 to 2 and 2.125 to 5.125, d between, c
    // until 10.125, b until 20.125. The middle of a job's work, less its submission, plus half its running
    // time:
    let a = (2.0 * 1.0 + 3.0 * 3.625) / 5.0 + 5.0;
    let (b, c, d) = (15.125 + 10.0, 7.625 - 1.0 + 2.5, 0.0625 + 0.5);
    let crowded = (a + b + c + d) / 4.0;
    assert!(bounds.completion_mean_s >= crowded && bounds.completion_mean_s < 12.0);
}

#[test]
fn queues_do_not_hold_each_other_up() {
    let scenario = scenario(four_jobs(), &[], Settings::default());
    let outcome = run(&scenario, Policy::Queues);
    let expected = [(0, 10), (0, 20), (20, 25), (10, 11)].map(|(at, end)| (Some(at), Some(end)));
    assert_eq!(times_s(&outcome), expected);
}

#[test]
fn priority_goes_first() {
    let urgent = TraceJob {
        service_class: Some("LS".to_owned()),
        ..job("urgent", 3, 5, 1)
    };
    let jobs = vec![job("a", 0, 10, 2), job("b", 1, 10, 2), urgent];
    let scenario = scenario(jobs, &[], Settings::default());
    let placed = |policy| times_s(&run(&scenario, policy))[2].0;
    assert_eq!(placed(Policy::Fifo), Some(20));
    assert_eq!(placed(Policy::Priority), Some(10));
}

#[test]
fn free_gpus_that_cannot_take_part_are_fragmented() {
    // One GPU is left, unusable for a task with four.
    let jobs = vec![
        small("a", 0, 10, 2),
        small("b", 0, 4, 3),
        small("c", 0, 10, 2),
        job("d", 0, 1, 1),
    ];
    let scenario = scenario(jobs, &[], Settings::default());
    let outcomes = [run(&scenario, Policy::Fifo)];
    let report = Report::new(&scenario, &outcomes);
    // a and c share a host (best fit); b leaves 1 GPU on the other until 4, when d gets that host.
    assert_eq!(times_s(&outcomes[0])[3], (Some(4), Some(5)));
    assert_eq!(report.runs[0].cluster.fragmentation_head, Some(1.0));
}

#[test]
fn jobs_end_as_in_the_trace() {
    let with = |ending| TraceJob {
        ending: Some(ending),
        ..job("a", 0, 10, 2)
    };
    for ending in [Ending::Pass, Ending::Killed, Ending::Failed] {
        let scenario = scenario(vec![with(ending)], &[], Settings::default());
        let outcome = run(&scenario, Policy::Fifo);
        assert_eq!(times_s(&outcome), [(Some(0), Some(10))], "{ending:?}");
        assert_eq!(outcome.records[0].end, JobEnd::Finished, "{ending:?}");
    }
}

#[test]
fn jobs_that_fit_nowhere_are_listed_and_delay_no_other() {
    let jobs = vec![
        small("wide", 0, 10, 5),
        job("many", 0, 10, 3),
        small("beyond", 0, 10, 1_000),
        TraceJob {
            gpu_models: vec!["A100".to_owned()],
            ..job("other", 0, 10, 1)
        },
        job("good", 0, 10, 2),
    ];
    let scenario = scenario(jobs, &[], Settings::default());
    let outcome = run(&scenario, Policy::Fifo);
    assert_eq!(
        outcome.fits_nowhere.first,
        [
            "wide (1 x 5 GPUs)",
            "many (3 x 4 GPUs)",
            "other (1 x 4 GPUs)"
        ]
    );
    assert_eq!(outcome.refused.count, 1);
    assert!(
        outcome.refused.first[0].contains("GPUS_PER_TASK_MAX"),
        "{:?}",
        outcome.refused
    );
    assert_eq!(times_s(&outcome)[4], (Some(0), Some(10)));
}

#[test]
fn packing_counts_the_jobs_that_could_be_placed() {
    let settings = Settings {
        packing: true,
        ..Settings::default()
    };
    let jobs = vec![job("a", 0, 10, 1), job("b", 5, 10, 1), job("c", 9, 10, 1)];
    let scenario = scenario(jobs, &[], settings);
    let outcomes = [run(&scenario, Policy::Fifo)];
    let report = Report::new(&scenario, &outcomes);
    assert_eq!(report.runs[0].cluster.gpus_held_at_end, 8);
    let all = &report.runs[0].all;
    assert_eq!((all.placed, all.unfinished), (2, 3));
    assert_eq!(outcomes[0].records[2].end, JobEnd::Waiting);
}

#[test]
fn a_job_without_gpus_or_duration_is_a_job() {
    let mut instant = job("instant", 0, 0, 2);
    instant.gpus_per_task = 0;
    let scenario = scenario(vec![instant], &[], Settings::default());
    let outcome = run(&scenario, Policy::Queues);
    assert_eq!(times_s(&outcome), [(Some(0), Some(0))]);
    let bytes = super::everything(&scenario, &[outcome]);
    let text = String::from_utf8_lossy(&bytes);
    assert!(!text.contains("NaN"), "division by zero gives no value");
}

#[test]
fn reserved_gpus_are_neither_down_nor_stranded() {
    // `c` needs both hosts and reserves them ten minutes after it came; `a`'s host is idle from 2000 to 4000. Later one
    // idle GPU is out for 500 s.
    let jobs = vec![
        job("a", 0, 2_000, 1),
        job("b", 0, 4_000, 1),
        job("c", 1, 10, 2),
        small("d", 4_400, 1_000, 1),
    ];
    let outages = [outage_of_gpu("n", 3, 4_500, 5_000)];
    let scenario = scenario(jobs, &outages, Settings::default());
    let outcomes = [run(&scenario, Policy::Backfill)];
    let expected = [(0, 2_000), (0, 4_000), (4_000, 4_010), (4_400, 5_400)];
    assert_eq!(
        times_s(&outcomes[0]),
        expected.map(|(at, end)| (Some(at), Some(end)))
    );
    let report = Report::new(&scenario, &outcomes);
    let cluster = &report.runs[0].cluster;
    assert!(
        (cluster.down_gpu_hours - 500.0 / 3_600.0).abs() < 1e-9,
        "{}",
        cluster.down_gpu_hours
    );
    assert_eq!(cluster.fragmentation_head, Some(0.0));
    // Free for 2000 s: a whole host; for 390 s both; then 7 GPUs for 500 s and 6 for 500 s, 4 of which are whole.
    let free = 2_000.0 * 4.0 + 390.0 * 8.0 + 500.0 * 7.0 + 500.0 * 6.0;
    let stranded = 500.0 * 3.0 + 500.0 * 2.0;
    let share = cluster.fragmentation_whole_host;
    assert!(
        share.is_some_and(|share| (share - stranded / free).abs() < 1e-9),
        "{share:?}"
    );
}
