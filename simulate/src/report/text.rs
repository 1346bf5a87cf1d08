//! Report as plain text: one line per policy for comparison, then each policy's jobs by queue and size.

use std::fmt;

use crate::report::figures::{Group, JobFigures, Spread};
use crate::report::numbers::{dash, grouped, percent, seconds, span};
use crate::report::{Inputs, Report, RunReport};
use crate::rules::TimeLimits;
use crate::workload::LeftOut;

/// Spaces between two columns.
const GAP: &str = "  ";

/// Titles of the columns for a policy.
pub(super) const RUN_TITLES: [&str; 12] = [
    "policy",
    "delay mean",
    "p50",
    "p99",
    "JCT mean",
    "p50",
    "p99",
    "makespan",
    "utilisation",
    "fragmentation",
    "fairness",
    "lost GPU-hours",
];

/// Titles of the columns for a group.
pub(super) const GROUP_TITLES: [&str; 12] = [
    "jobs of",
    "jobs",
    "placed",
    "finished",
    "delay mean",
    "p50",
    "p99",
    "JCT mean",
    "p50",
    "p99",
    "slowdown",
    "stopped",
];

/// Cells of a policy's line.
pub(super) fn run_cells(run: &RunReport) -> Vec<String> {
    let cluster = &run.cluster;
    let mut cells = vec![run.policy.to_owned()];
    cells.extend(spread_cells(run.all.delay));
    cells.extend(spread_cells(run.all.completion));
    cells.extend([
        span(cluster.makespan_s),
        percent(
            cluster
                .utilisation_until_last_submission
                .or(cluster.utilisation),
        ),
        percent(cluster.fragmentation_head),
        cluster
            .fairness
            .map_or_else(dash, |index| format!("{index:.3}")),
        format!("{:.1}", run.all.lost_gpu_hours),
    ]);
    cells
}

/// Lines for all jobs, for every size and for every queue.
pub(super) fn group_rows(run: &RunReport) -> Vec<Vec<String>> {
    let line =
        |kind: &str, group: &Group| group_cells(format!("{kind} {}", group.name), &group.jobs);
    let sizes = run.by_size.iter().map(|group| line("GPUs", group));
    let queues = run.by_queue.iter().map(|group| line("queue", group));
    std::iter::once(group_cells("all".to_owned(), &run.all))
        .chain(sizes)
        .chain(queues)
        .collect()
}

fn group_cells(name: String, jobs: &JobFigures) -> Vec<String> {
    let counts = [jobs.jobs, jobs.placed, jobs.finished].map(grouped);
    let mut cells: Vec<String> = std::iter::once(name).chain(counts).collect();
    cells.extend(spread_cells(jobs.delay));
    cells.extend(spread_cells(jobs.completion));
    cells.push(
        jobs.slowdown_mean
            .map_or_else(dash, |slowdown| format!("{slowdown:.1}")),
    );
    cells.push(grouped(jobs.preemptions + jobs.moves + jobs.interruptions));
    cells
}

fn spread_cells(spread: Option<Spread>) -> [String; 3] {
    spread.map_or_else(
        || [dash(), dash(), dash()],
        |spread| [spread.mean_s, spread.p50_s, spread.p99_s].map(span),
    )
}

/// Input and exclusions, in sentences.
pub(super) fn sentences(inputs: &Inputs) -> Vec<String> {
    let mut sentences = vec![format!(
        "{} jobs at load {} on {} hosts with {} GPUs, {} outages",
        grouped(inputs.jobs as u64),
        inputs.load,
        grouped(inputs.hosts as u64),
        grouped(inputs.gpus),
        grouped(inputs.outages as u64)
    )];
    sentences.extend(varied(inputs));
    sentences.extend(left_out("have no duration", &inputs.without_duration));
    if inputs.shares_rounded_up > 0 {
        let count = grouped(inputs.shares_rounded_up);
        sentences.push(format!(
            "{count} jobs requested a fraction of a GPU and get a whole one"
        ));
    }
    if inputs.outages_elsewhere > 0 {
        let count = grouped(inputs.outages_elsewhere);
        sentences.push(format!(
            "{count} outages are of nodes that no host represents"
        ));
    }
    sentences
}

/// Deviations from the unmodified policies, in a sentence.
fn varied(inputs: &Inputs) -> Option<String> {
    let (rules, told) = (inputs.rules, inputs.told);
    let limits = match told.limits {
        TimeLimits::None => None,
        TimeLimits::Exact => Some("jobs have exact time limits".to_owned()),
        TimeLimits::RoundedUp { step_ms } => {
            let step = span(seconds(step_ms.get()));
            Some(format!("jobs have time limits in steps of {step}"))
        }
    };
    let says = |holds: bool, what: &str| holds.then(|| what.to_owned());
    let parts = [
        says(!rules.borrow, "no queue borrows"),
        says(rules.strict, "no job overtakes the head of a queue"),
        says(rules.defragment, "running work may be moved"),
        limits,
        says(
            told.alike,
            "run times are learnt by virtual cluster and size",
        ),
        says(!told.checkpoints, "the scheduler knows of no checkpoints"),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Exclusions of a run, in sentences.
pub(super) fn run_sentences(run: &RunReport) -> Vec<String> {
    let fits = left_out("could never be held by the cluster", &run.fits_nowhere);
    let refused = left_out("were refused", &run.refused);
    let unfinished = (run.all.unfinished > 0).then(|| {
        let (count, held) = (grouped(run.all.unfinished), run.cluster.gpus_held_at_end);
        format!(
            "{count} jobs have not ended; {} GPUs are held at the end",
            grouped(held)
        )
    });
    [fits, refused, unfinished].into_iter().flatten().collect()
}

fn left_out(what: &str, left_out: &LeftOut) -> Option<String> {
    if left_out.count == 0 {
        return None;
    }
    let names = left_out.first.join(", ");
    let more = if left_out.count > left_out.first.len() as u64 {
        ", ..."
    } else {
        ""
    };
    Some(format!(
        "{} jobs {what}: {names}{more}",
        grouped(left_out.count)
    ))
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for sentence in sentences(&self.inputs) {
            writeln!(formatter, "{sentence}")?;
        }
        writeln!(formatter)?;
        let runs = self.runs.iter().map(run_cells).collect::<Vec<_>>();
        write_table(formatter, &RUN_TITLES, &runs)?;
        if let Some(run) = self.runs.first() {
            let bounds = run.bounds;
            let (completion, makespan) = (span(bounds.completion_mean_s), span(bounds.makespan_s));
            writeln!(
                formatter,
                "bound for any policy: JCT mean {completion}, makespan {makespan}, useful utilisation {}",
                percent(bounds.utilisation_until_last_submission)
            )?;
        }
        for run in &self.runs {
            writeln!(formatter, "\n{}", run.policy)?;
            for sentence in run_sentences(run) {
                writeln!(formatter, "{sentence}")?;
            }
            write_table(formatter, &GROUP_TITLES, &group_rows(run))?;
        }
        Ok(())
    }
}

/// Columns as wide as their longest cell: the first one left-aligned, the others right-aligned.
fn write_table(
    formatter: &mut fmt::Formatter<'_>,
    titles: &[&str],
    rows: &[Vec<String>],
) -> fmt::Result {
    let titles: Vec<String> = titles.iter().map(|title| (*title).to_owned()).collect();
    let lines = || std::iter::once(&titles).chain(rows);
    let width = |column: usize| {
        let cells = lines().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    for line in lines() {
        for (column, (cell, width)) in line.iter().zip(&widths).enumerate() {
            match column {
                0 => write!(formatter, "{cell:<width$}")?,
                _ => write!(formatter, "{GAP}{cell:>width$}")?,
            }
        }
        writeln!(formatter)?;
    }
    Ok(())
}
