//! Real Philly trace, if present.

use std::path::Path;

use muster_simulate::report::Report;
use muster_simulate::trace::{Cluster, read_jobs, read_outages};
use muster_simulate::{JobEnd, Policy, Scenario, Settings};

use crate::runs::run;

/// Number of leading jobs simulated with faults.
const JOBS_WITH_FAULTS: usize = 5_000;
/// Instants between two audits of such a large state.
const AUDIT_EVERY: u64 = 1_000;

#[test]
fn the_whole_philly_trace_runs_to_its_end() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/traces");
    let path = folder.join("philly_jobs.csv.gz");
    if !path.exists() {
        tracing::warn!(path = %path.display(), "skipped: trace not found");
        return;
    }
    let jobs = read_jobs(&path, 0, usize::MAX).unwrap();
    let cluster = Cluster::uniform(352, 8, "V100");
    let scenario = Scenario::new(cluster, jobs, &[], Settings::default());
    let outcomes = [run(&scenario, Policy::Queues)];
    let report = Report::new(&scenario, &outcomes);
    let all = &report.runs[0].all;
    assert_eq!((all.jobs, all.finished), (111_549, 111_549));
    // 3.62 million GPU-hours, as the trace's own description says.
    assert!(
        (3.61e6..3.63e6).contains(&all.done_gpu_hours),
        "{}",
        all.done_gpu_hours
    );
    assert!(all.lost_gpu_hours == 0.0);
}

#[test]
fn real_faults_on_the_real_trace_leave_the_state_sound() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data/traces");
    let jobs = folder.join("philly_jobs.csv.gz");
    let faults = folder.join("infinitehbd_node_faults_first_half.csv.gz");
    if !jobs.exists() || !faults.exists() {
        tracing::warn!(path = %folder.display(), "skipped: traces not found");
        return;
    }
    let jobs = read_jobs(&jobs, 1_000, JOBS_WITH_FAULTS).unwrap();
    let settings = Settings {
        audit_every: Some(AUDIT_EVERY),
        ..Settings::default()
    };
    let outages = read_outages(&faults).unwrap();
    let cluster = Cluster::uniform(64, 8, "V100");
    let scenario = Scenario::new(cluster, jobs, &outages, settings);
    let outcome = run(&scenario, Policy::Fifo);
    assert!(outcome.audits > 0);
    let interrupted = outcome
        .records
        .iter()
        .filter(|record| record.interruptions > 0);
    assert!(interrupted.count() > 0);
    let ended = |end| {
        outcome
            .records
            .iter()
            .filter(|record| record.end == end)
            .count()
    };
    assert_eq!(
        ended(JobEnd::Finished) + ended(JobEnd::FitsNowhere),
        JOBS_WITH_FAULTS
    );
}
