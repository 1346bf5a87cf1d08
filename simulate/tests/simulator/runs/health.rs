//! Undetected faults: what the engine finds, blocks and unblocks.

use muster_simulate::report::Report;
use muster_simulate::trace::{Cluster, Outage};
use muster_simulate::{
    HealthCounts, HealthFeatures, JobInformation, Outcome, Policy, Scenario, Settings,
};

use crate::runs::{everything, run, small};

const HOUR_S: u64 = 3_600;
/// Cause in the faults file for a GPU with broken memory.
const DBE: &str = "GPU: GPU DBE(Double Bit ECC) > Threshold";
/// Cause of an unknown fault.
const UNKNOWN: &str = "Unknown Error: Unknown Error";

/// The first GPU of a node is faulty from the first hour on, for a day.
fn outage(cause: &str) -> Vec<Outage> {
    vec![Outage {
        node: "n0".to_owned(),
        gpu: Some(0),
        start_ms: HOUR_S * 1_000,
        end_ms: 25 * HOUR_S * 1_000,
        cause: cause.to_owned(),
    }]
}

/// Jobs of one GPU each, one every ten minutes for two days, on ten hosts with four GPUs.
fn scenario_with(cause: &str, features: HealthFeatures) -> Scenario {
    let jobs = (0..288).map(|job| small(&format!("job{job}"), job * 600, 4 * HOUR_S, 1));
    let settings = Settings {
        audit_every: Some(1),
        ..Settings::default()
    };
    let cluster = Cluster::uniform(10, 4, "V100");
    Scenario::new(cluster, jobs.collect(), &[], settings)
        .with_health_features(&outage(cause), features)
}

fn counts(outcome: &Outcome) -> HealthCounts {
    outcome.health.unwrap()
}

fn ruined(scenario: &Scenario, outcome: &Outcome) -> u64 {
    let report = Report::new(scenario, std::slice::from_ref(outcome));
    report.runs[0].health.unwrap().ruined
}

#[test]
fn only_faulty_hosts_or_parts_are_blocked() {
    let outcome = |features| {
        let scenario = scenario_with(DBE, features);
        let outcome = run(&scenario, Policy::Fifo);
        (counts(&outcome), ruined(&scenario, &outcome))
    };
    let (nothing, ruined_by_nothing) = outcome(HealthFeatures::Nothing);
    assert_eq!((nothing.blocks, nothing.healthy_out_gpu_ms.total()), (0, 0));
    assert!(ruined_by_nothing > 0 && nothing.struck > 3 * ruined_by_nothing);
    let (hosts, ruined_by_hosts) = outcome(HealthFeatures::BlockHosts);
    let (parts, ruined_by_parts) = outcome(HealthFeatures::BlockParts);
    assert_eq!((ruined_by_hosts, ruined_by_parts), (0, 0));
    assert_eq!((hosts.false_blocks, parts.false_blocks), (0, 0));
    assert_eq!((hosts.out_max, parts.out_max), (4, 1));
    assert!(hosts.healthy_out_gpu_ms.total() > 3 * 20 * u128::from(HOUR_S) * 1_000);
    assert!(parts.healthy_out_gpu_ms.total() < u128::from(HOUR_S) * 1_000);
}

#[test]
fn attribution_blocks_parts_whose_faults_no_rule_finds() {
    // A single run may be a coincidence: three are used.
    let courses = |features| {
        [1, 2, 3].map(|seed| {
            let scenario = scenario_with(UNKNOWN, features).with_fault_seed(seed);
            let outcome = run(&scenario, Policy::Fifo);
            (counts(&outcome), ruined(&scenario, &outcome))
        })
    };
    let struck = |courses: &[(HealthCounts, u64)]| {
        let struck = courses.iter().map(|(counts, _)| counts.struck);
        struck.sum::<u64>()
    };
    let (parts, attributed) = (
        courses(HealthFeatures::BlockParts),
        courses(HealthFeatures::Attribute),
    );
    assert!(
        parts.iter().all(|(counts, _)| counts.blocks == 0),
        "no rule finds it"
    );
    assert!(
        struck(&attributed) < struck(&parts),
        "{attributed:?} {parts:?}"
    );
    assert!(attributed.iter().any(|(counts, _)| counts.blocks > 0));
    assert!(attributed.iter().all(|(_, ruined)| *ruined == 0));
    // The seed is the only difference between them.
    let all = parts.map(|(counts, _)| counts.struck);
    assert!(all.iter().any(|struck| *struck != all[0]), "{all:?}");
}

#[test]
fn a_rule_with_false_alarms_blocks_no_more_hosts_than_its_budget() {
    let alarm_ms = 2 * HOUR_S * 1_000..20 * HOUR_S * 1_000;
    let scenario = scenario_with(DBE, HealthFeatures::Lemons).with_false_alarm(60, alarm_ms);
    let outcome = run(&scenario, Policy::Fifo);
    let counts = counts(&outcome);
    assert!(counts.false_blocks > 0, "the alarm had an effect");
    // In so small a pool two hosts may be out on suspicion, plus the faulty ones: of six hosts that the
    // alarm is about.
    assert!(counts.out_max <= 2 * 4 + 1, "{counts:?}");
    assert_eq!(ruined(&scenario, &outcome), 0);
}

#[test]
fn the_same_faults_give_the_same_run() {
    let scenario = scenario_with(UNKNOWN, HealthFeatures::Lemons);
    let [first, second] = [(), ()].map(|()| vec![run(&scenario, Policy::Fifo)]);
    assert_eq!(counts(&first[0]), counts(&second[0]));
    assert_eq!(
        everything(&scenario, &first),
        everything(&scenario, &second)
    );
}

#[test]
fn work_with_checkpoints_leaves_a_rules_drain_without_loss() {
    let outcome = |checkpoints| {
        let settings = Settings {
            audit_every: Some(1),
            job_information: JobInformation {
                checkpoints,
                ..JobInformation::default()
            },
            ..Settings::default()
        };
        let jobs = vec![small("long", 0, 72 * HOUR_S, 4)];
        let cluster = Cluster::uniform(10, 4, "V100");
        let scenario = Scenario::new(cluster, jobs, &[], settings);
        // Slow, not broken: its rule waits for running work to end.
        run(
            &scenario.with_health_features(&outage("PCI link width"), HealthFeatures::BlockParts),
            Policy::Fifo,
        )
    };
    let attempts = |outcome: &Outcome| {
        let record = &outcome.records[0];
        (outcome.placements, record.lost_ms, record.finished_ms)
    };
    let done_at = Some(72 * HOUR_S * 1_000);
    assert_eq!(attempts(&outcome(false)), (1, 0, done_at), "it stays");
    assert_eq!(attempts(&outcome(true)), (2, 0, done_at), "it leaves");
    let out = |checkpoints| counts(&outcome(checkpoints)).blocks;
    assert_eq!((out(false), out(true)), (1, 1));
}
