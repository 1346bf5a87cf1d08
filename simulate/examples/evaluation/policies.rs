//! Policies on Philly's complete virtual clusters, on all of Philly, and on openb as a packing.

use muster_simulate::report::{Report, RunReport};
use muster_simulate::{Outcome, Policy, Scenario, Settings, simulate};

use crate::table::{digits, hours, markdown, percent};
use crate::traces::Traces;
use crate::{Failure, Figures, work};

/// Jobs arrive twice as fast as in the trace: at its own pace hardly any job waits.
const LOAD: f64 = 2.0;
const POLICIES: [Policy; 6] = [
    Policy::Fifo,
    Policy::Priority,
    Policy::Backfill,
    Policy::Fair,
    Policy::Capacity,
    Policy::Cells,
];
/// Virtual clusters are left out on all of Philly: at this load their searches for victims take longer than
/// everything else.
const POLICIES_OF_WHOLE: [Policy; 5] = [
    Policy::Fifo,
    Policy::Priority,
    Policy::Backfill,
    Policy::Fair,
    Policy::Capacity,
];
/// openb has no virtual clusters.
const POLICIES_OF_OPENB: [Policy; 3] = [Policy::Fifo, Policy::Priority, Policy::Backfill];

pub(super) fn figures(traces: &Traces) -> Result<Figures, Failure> {
    let settings = Settings {
        load: LOAD,
        ..Settings::default()
    };
    let philly = traces.complete(settings, &[])?;
    let outcomes = outcomes(&philly, &POLICIES)?;
    let report = Report::new(&philly, &outcomes);
    let whole = traces.philly(settings)?;
    let whole_outcomes = self::outcomes(&whole, &POLICIES_OF_WHOLE)?;
    let whole = Report::new(&whole, &whole_outcomes);
    let openb = traces.openb()?;
    let packed = self::outcomes(&openb, &POLICIES_OF_OPENB)?;
    let packing = Report::new(&openb, &packed);
    Ok(Figures {
        tables: vec![
            ("policies-philly", philly_table(&report)),
            ("policies-whole", philly_table(&whole)),
            ("policies-openb", openb_table(&openb, &packing)),
        ],
        pictures: vec![("policies", report.delays_picture())],
    })
}

fn outcomes(scenario: &Scenario, policies: &[Policy]) -> Result<Vec<Outcome>, Failure> {
    work::all(policies, |policy| {
        Ok(simulate(scenario, *policy, &mut |_| {})?)
    })
}

fn philly_table(report: &Report<'_>) -> String {
    let titles = [
        "policy",
        "JCT mean, h",
        "p50",
        "p99",
        "delay mean, h",
        "p99",
        "makespan, d",
        "utilisation",
        "fragmentation",
        "fairness",
        "preempted",
        "lost GPU-h",
    ];
    let mut rows: Vec<Vec<String>> = report.runs.iter().map(philly_row).collect();
    rows.extend(report.runs.first().map(bound_row));
    markdown(&titles, &rows)
}

fn philly_row(run: &RunReport) -> Vec<String> {
    let mut row = vec![run.policy.to_owned()];
    let completion = run
        .all
        .completion
        .map(|spread| [spread.mean_s, spread.p50_s, spread.p99_s].map(hours));
    row.extend(completion.into_iter().flatten());
    let delay = run
        .all
        .delay
        .map(|spread| [spread.mean_s, spread.p99_s].map(hours));
    row.extend(delay.into_iter().flatten());
    row.extend([
        digits(run.cluster.makespan_s / 86_400.0),
        percent(run.cluster.utilisation_until_last_submission),
        percent(run.cluster.fragmentation_head),
        run.cluster
            .fairness
            .map_or_else(|| "-".to_owned(), |index| format!("{index:.3}")),
        run.all.preemptions.to_string(),
        digits(run.all.lost_gpu_hours),
    ]);
    row
}

/// Row of the bounds for any policy.
fn bound_row(run: &RunReport) -> Vec<String> {
    let bounds = run.bounds;
    [
        "*bound for any policy*".to_owned(),
        hours(bounds.completion_mean_s),
        "-".to_owned(),
        "-".to_owned(),
        hours(bounds.completion_mean_s - bounds.run_mean_s),
        "-".to_owned(),
        digits(bounds.makespan_s / 86_400.0),
        percent(bounds.utilisation_until_last_submission),
        "0.0 %".to_owned(),
        "1.000".to_owned(),
        "0".to_owned(),
        "0".to_owned(),
    ]
    .into()
}

fn openb_table(scenario: &Scenario, report: &Report<'_>) -> String {
    let titles = [
        "policy",
        "jobs placed",
        "GPUs held",
        "of all",
        "free on hosts in use",
    ];
    let gpus = report.inputs.gpus;
    let mut rows: Vec<Vec<String>> = report
        .runs
        .iter()
        .map(|run| {
            let held = run.cluster.gpus_held_at_end;
            vec![
                run.policy.to_owned(),
                run.all.placed.to_string(),
                held.to_string(),
                percent(share(held, gpus)),
                percent(run.cluster.fragmentation_whole_host),
            ]
        })
        .collect();
    let (jobs, most) = scenario.packing_bound();
    rows.push(vec![
        "*bound for any policy*".to_owned(),
        jobs.to_string(),
        most.to_string(),
        percent(share(most, gpus)),
        "0.0 %".to_owned(),
    ]);
    markdown(&titles, &rows)
}

#[expect(clippy::cast_precision_loss, reason = "counts of GPUs are small")]
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
