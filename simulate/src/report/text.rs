//! Report as plain text: one line per policy for comparison, then each policy's jobs by queue and size.

use std::fmt;

use muster_text::Table;

use crate::report::figures::{Group, JobFigures, Spread};
use crate::report::numbers::{dash, grouped, percent, seconds, span};
use crate::report::{Inputs, Report, RunReport};
use crate::rules::TimeLimits;
use crate::workload::LeftOut;

/// Titles of the columns for a policy.
const RUN_TITLES: [&str; 12] = [
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
const GROUP_TITLES: [&str; 12] = [
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

/// A row for each policy.
pub(super) fn runs(runs: &[RunReport]) -> Table {
    Table::of_numbers(&RUN_TITLES).with_rows(runs.iter().map(run_cells))
}

fn run_cells(run: &RunReport) -> Vec<String> {
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

/// Rows for all jobs, for every size and for every queue.
pub(super) fn groups(run: &RunReport) -> Table {
    let line =
        |kind: &str, group: &Group| group_cells(format!("{kind} {}", group.name), &group.jobs);
    let sizes = run.by_size.iter().map(|group| line("GPUs", group));
    let queues = run.by_queue.iter().map(|group| line("queue", group));
    let all = group_cells("all".to_owned(), &run.all);
    Table::of_numbers(&GROUP_TITLES).with_rows(std::iter::once(all).chain(sizes).chain(queues))
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
    if inputs.quotas_not_applied > 0 {
        let count = grouped(inputs.quotas_not_applied);
        sentences.push(format!(
            "{count} quotas of later dates are not applied: the first of each virtual cluster counts all the time"
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
    let (rules, information) = (inputs.rules, inputs.job_information);
    let limits = match information.limits {
        TimeLimits::None => None,
        TimeLimits::Exact => Some("jobs have exact time limits".to_owned()),
        TimeLimits::RoundedUp { step_ms } => {
            let step = span(seconds(step_ms.get()));
            Some(format!("jobs have time limits in steps of {step}"))
        }
    };
    let phrase = |holds: bool, text: &str| holds.then(|| text.to_owned());
    let parts = [
        phrase(!rules.borrow, "no queue borrows"),
        phrase(rules.strict, "no job overtakes the head of a queue"),
        phrase(rules.defragment, "running work may be moved"),
        limits,
        phrase(
            information.alike,
            "run times are estimated by virtual cluster and size",
        ),
        phrase(
            !information.checkpoints,
            "the scheduler knows of no checkpoints",
        ),
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
        write!(formatter, "{}", runs(&self.runs))?;
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
            write!(formatter, "{}", groups(run))?;
        }
        Ok(())
    }
}
