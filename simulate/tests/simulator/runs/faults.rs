//! Hosts that fail while jobs run.

use muster_simulate::trace::Outage;
use muster_simulate::{Policy, Settings};

use crate::runs::{job, run, scenario, times_s};

fn outage(node: &str, start_s: u64, end_s: u64) -> Outage {
    Outage {
        gpu: None,
        node: node.to_owned(),
        start_ms: start_s * 1_000,
        end_ms: end_s * 1_000,
        cause: String::new(),
    }
}

fn every(seconds: u64) -> Settings {
    Settings {
        checkpoint_interval_ms: Some(seconds * 1_000),
        audit_every: Some(1),
        ..Settings::default()
    }
}

#[test]
fn a_gang_continues_from_its_last_checkpoint() {
    let outages = [outage("n1", 50, 60)];
    let scenario = scenario(vec![job("gang", 0, 100, 2)], &outages, every(30));
    let outcome = run(&scenario, Policy::Fifo);
    // 50 s done, 30 s kept; 70 s left from 60 on.
    assert_eq!(times_s(&outcome), [(Some(0), Some(130))]);
    let record = &outcome.records[0];
    assert_eq!((record.done_ms, record.lost_ms), (100_000, 20_000));
    assert_eq!((record.interruptions, record.preemptions), (1, 0));
    assert_eq!(record.lost_gpu_ms(), 160_000);
}

#[test]
fn without_checkpoints_everything_is_lost() {
    let settings = Settings {
        checkpoint_interval_ms: None,
        ..every(1)
    };
    let outages = [outage("n1", 50, 60)];
    let scenario = scenario(vec![job("gang", 0, 100, 2)], &outages, settings);
    let outcome = run(&scenario, Policy::Fifo);
    assert_eq!(times_s(&outcome), [(Some(0), Some(160))]);
    assert_eq!(outcome.records[0].lost_ms, 50_000);
}

#[test]
fn overlapping_outages_of_a_host_are_one() {
    let outages = [outage("n1", 10, 40), outage("n1", 20, 30)];
    let scenario = scenario(vec![job("gang", 0, 20, 2)], &outages, every(10));
    let outcome = run(&scenario, Policy::Fifo);
    assert_eq!(times_s(&outcome), [(Some(0), Some(50))]);
    assert_eq!(outcome.records[0].interruptions, 1);
}

#[test]
fn a_job_that_ends_at_the_moment_of_a_fault_counts_as_ended() {
    let outages = [outage("n1", 20, 30)];
    let scenario = scenario(vec![job("gang", 0, 20, 2)], &outages, every(10));
    let outcome = run(&scenario, Policy::Fifo);
    assert_eq!(times_s(&outcome), [(Some(0), Some(20))]);
    assert_eq!(outcome.records[0].interruptions, 0);
}

#[test]
fn a_single_task_moves_to_another_host() {
    // The planner takes the host with the lower id; the second one is free.
    let outages = [outage("n1", 7, 1_000)];
    let scenario = scenario(vec![job("single", 0, 20, 1)], &outages, every(5));
    let outcome = run(&scenario, Policy::Fifo);
    // 7 s done, 5 s kept, 15 s left at once.
    assert_eq!(times_s(&outcome), [(Some(0), Some(22))]);
}
