//! Complete simulations: small ones with exact results, properties of random ones, a real trace.
mod by_hand;
mod drawn;
mod faults;
mod health;
mod philly;
mod sharing;

use muster_simulate::report::Report;
use muster_simulate::trace::{Cluster, Outage, TraceJob};
use muster_simulate::{JobRecord, Outcome, Policy, Scenario, Settings, simulate};

/// A job of some tasks with 4 GPUs each, in whole seconds.
fn job(name: &str, submit_s: u64, duration_s: u64, tasks: u32) -> TraceJob {
    TraceJob {
        name: name.to_owned(),
        submit_ms: submit_s * 1_000,
        duration_ms: Some(duration_s * 1_000),
        tasks,
        gpus_per_task: 4,
        ..TraceJob::default()
    }
}

/// A job of one task with the given GPUs.
fn small(name: &str, submit_s: u64, duration_s: u64, gpus: u32) -> TraceJob {
    TraceJob {
        gpus_per_task: gpus,
        ..job(name, submit_s, duration_s, 1)
    }
}

fn in_queue(queue: &str, job: TraceJob) -> TraceJob {
    TraceJob {
        queue: Some(queue.to_owned()),
        ..job
    }
}

/// A GPU of a node is unavailable for a while.
fn outage_of_gpu(node: &str, gpu: u32, start_s: u64, end_s: u64) -> Outage {
    Outage {
        node: node.to_owned(),
        gpu: Some(gpu),
        start_ms: start_s * 1_000,
        end_ms: end_s * 1_000,
        cause: String::new(),
    }
}

/// Two hosts with four GPUs each.
fn scenario(jobs: Vec<TraceJob>, outages: &[Outage], settings: Settings) -> Scenario {
    Scenario::new(Cluster::uniform(2, 4, "V100"), jobs, outages, settings)
}

fn run(scenario: &Scenario, policy: Policy) -> Outcome {
    simulate(scenario, policy, &mut |_| {}).unwrap()
}

/// First placement and end of every job, in seconds.
fn times_s(outcome: &Outcome) -> Vec<(Option<u64>, Option<u64>)> {
    let whole = |ms: u64| ms / 1_000;
    let times = |record: &JobRecord| {
        (
            record.first_placed_ms.map(whole),
            record.finished_ms.map(whole),
        )
    };
    outcome.records.iter().map(times).collect()
}

/// The complete report: its table, then its files.
fn everything(scenario: &Scenario, outcomes: &[Outcome]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let report = Report::new(scenario, outcomes);
    let paths = report.write(folder.path()).unwrap();
    let files = paths.iter().flat_map(|path| std::fs::read(path).unwrap());
    report
        .to_string()
        .into_bytes()
        .into_iter()
        .chain(files)
        .collect()
}
