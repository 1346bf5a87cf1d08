//! Charts of the report, each of one or several runs.

use muster_text::{Axis, Legend, Picture, colour};

use crate::measure::{Bar, JobRecord};
use crate::report::Series;
use crate::report::numbers::{float, seconds};
use crate::workload::Scenario;
use crate::world::Outcome;

/// Seconds of a day.
const DAY_S: f64 = 86_400.0;
/// Height of a picture's drawing area in pixels.
const HEIGHT: f64 = 240.0;
/// Queues with a colour of their own; the others share one.
const QUEUES_SHOWN_MAX: usize = 16;
/// Points of a distribution's line.
const DISTRIBUTION_POINTS: u32 = 240;
/// Shortest delay that is distinguished on the logarithmic axis, in seconds.
const DELAY_S_MIN: f64 = 1.0;
/// Ticks of the axis of delays.
const DELAY_TICKS: [(f64, &str); 9] = [
    (1.0, "1 s"),
    (10.0, "10 s"),
    (60.0, "1 min"),
    (600.0, "10 min"),
    (3_600.0, "1 h"),
    (6.0 * 3_600.0, "6 h"),
    (DAY_S, "1 d"),
    (7.0 * DAY_S, "7 d"),
    (30.0 * DAY_S, "30 d"),
];
/// Height of a GPU's row in the Gantt chart, in pixels.
const ROW_HEIGHT: f64 = 7.0;
/// Columns of the Gantt chart: a bar shorter than one is drawn as part of its queue's share.
const COLUMNS: usize = 820;
/// Minimum number of columns for a job to be drawn by itself.
const COLUMNS_OF_JOB_MIN: usize = 3;

/// Days from the first submission to the end of the longest run.
fn days(outcomes: &[Outcome]) -> f64 {
    let ends = outcomes.iter().map(|outcome| outcome.observed.end_ms);
    seconds(ends.max().unwrap_or(0)) / DAY_S
}

fn time_axis(outcomes: &[Outcome]) -> Axis {
    Axis::linear("days after the first submission", days(outcomes))
}

/// One colour per policy.
pub(super) fn policies(outcomes: &[Outcome]) -> Legend {
    let names = outcomes.iter().enumerate();
    names
        .map(|(position, outcome)| (outcome.policy.name().to_owned(), colour(position)))
        .collect()
}

/// A series' averages against days, as steps.
fn steps(series: &Series, scale: f64) -> Vec<(f64, f64)> {
    let slice_days = seconds(series.slice_ms()) / DAY_S;
    let averages = series.averages().into_iter().zip(0u64..);
    averages
        .flat_map(|(value, slice)| {
            let from = float(slice) * slice_days;
            [(from, value / scale), (from + slice_days, value / scale)]
        })
        .collect()
}

/// Share of all GPUs that attempts hold, over time.
pub(super) fn utilisation(scenario: &Scenario, outcomes: &[Outcome]) -> String {
    let gpus = float(scenario.cluster.gpus());
    let share = Axis::linear("share of GPUs held", 1.0);
    let mut picture = Picture::new(time_axis(outcomes), share, HEIGHT);
    for (position, outcome) in outcomes.iter().enumerate() {
        picture.line(&steps(&outcome.observed.held, gpus), &colour(position));
    }
    picture.finish()
}

/// GPUs that waiting jobs request, over time.
pub(super) fn demand(outcomes: &[Outcome]) -> String {
    let lines: Vec<_> = outcomes
        .iter()
        .map(|outcome| steps(&outcome.observed.waiting_gpus, 1.0))
        .collect();
    let highest = lines.iter().flatten().map(|(_, value)| *value);
    let axis = Axis::linear("GPUs that waiting jobs want", highest.fold(1.0, f64::max));
    let mut picture = Picture::new(time_axis(outcomes), axis, HEIGHT);
    for (position, line) in lines.iter().enumerate() {
        picture.line(line, &colour(position));
    }
    picture.finish()
}

/// Share of placed jobs whose queueing delay does not exceed a time.
pub(super) fn delays(outcomes: &[Outcome]) -> String {
    delays_of(outcomes).finish()
}

/// The unfinished picture of [`delays`].
pub(super) fn delays_of(outcomes: &[Outcome]) -> Picture {
    let sorted: Vec<Vec<f64>> = outcomes.iter().map(sorted_delays_s).collect();
    let longest = sorted.iter().filter_map(|delays| delays.last().copied());
    let longest = longest.fold(10.0 * DELAY_S_MIN, f64::max);
    let label = "queueing delay (logarithmic; those below 1 s are at the left edge)";
    let axis = Axis::logarithmic(label, (DELAY_S_MIN, longest), &DELAY_TICKS);
    let share = Axis::linear("share of jobs", 1.0);
    let mut picture = Picture::new(axis, share, HEIGHT);
    for (position, delays) in sorted.iter().enumerate() {
        let ratio = (longest / DELAY_S_MIN).powf(1.0 / f64::from(DISTRIBUTION_POINTS));
        let points = (0..=DISTRIBUTION_POINTS).map(|point| {
            let delay = DELAY_S_MIN * ratio.powf(f64::from(point));
            let within = delays.partition_point(|other| *other <= delay * 1.000_001);
            (
                delay,
                float(within as u64) / float(delays.len().max(1) as u64),
            )
        });
        picture.line(&points.collect::<Vec<_>>(), &colour(position));
    }
    picture
}

fn sorted_delays_s(outcome: &Outcome) -> Vec<f64> {
    let mut delays_ms: Vec<u64> = outcome
        .records
        .iter()
        .filter_map(JobRecord::delay_ms)
        .collect();
    delays_ms.sort_unstable();
    delays_ms.into_iter().map(seconds).collect()
}

/// Positions of a run's queues, most GPU time first.
fn ranking(outcome: &Outcome) -> Vec<usize> {
    let total = |queue: usize| -> f64 {
        outcome.observed.held_by_queue[queue]
            .averages()
            .iter()
            .sum()
    };
    let totals: Vec<f64> = (0..outcome.queues.len()).map(total).collect();
    let mut ranking: Vec<usize> = (0..outcome.queues.len()).collect();
    ranking.sort_by(|a, b| totals[*b].total_cmp(&totals[*a]).then(a.cmp(b)));
    ranking
}

/// Colours of a scenario's queues: the same in all pictures, by the first run's ranking.
pub(super) struct QueueColours {
    /// By position of the queue.
    colours: Vec<String>,
    /// Queues with a colour of their own, in order.
    shown: Vec<usize>,
    /// Names and colours.
    pub(super) legend: Legend,
}

impl QueueColours {
    pub(super) fn of(outcome: &Outcome) -> Self {
        let ranking = ranking(outcome);
        let others = "hsl(0 0% 60%)".to_owned();
        let mut colours = vec![others.clone(); ranking.len()];
        let shown: Vec<usize> = ranking.into_iter().take(QUEUES_SHOWN_MAX).collect();
        let mut legend = Legend::new();
        for (position, queue) in shown.iter().enumerate() {
            colours[*queue] = colour(position);
            legend.push((outcome.queues[*queue].clone(), colour(position)));
        }
        if colours.len() > shown.len() {
            legend.push(("others".to_owned(), others));
        }
        Self {
            colours,
            shown,
            legend,
        }
    }
}

/// GPUs held by each queue over time, stacked.
pub(super) fn queue_shares(
    scenario: &Scenario,
    outcome: &Outcome,
    queues: &QueueColours,
) -> String {
    let gpus = float(scenario.cluster.gpus());
    let axis = Axis::linear("share of GPUs held", 1.0);
    let mut picture = Picture::new(time_axis(std::slice::from_ref(outcome)), axis, HEIGHT);
    let mut below: Vec<(f64, f64)> = steps(&outcome.observed.held, gpus)
        .into_iter()
        .map(|(day, _)| (day, 0.0))
        .collect();
    for queue in &queues.shown {
        let own = steps(&outcome.observed.held_by_queue[*queue], gpus);
        let above: Vec<(f64, f64)> = below
            .iter()
            .enumerate()
            .map(|(point, (day, sum))| {
                (*day, sum + own.get(point).map_or(0.0, |(_, value)| *value))
            })
            .collect();
        picture.area(&below, &above, &queues.colours[*queue]);
        below = above;
    }
    if queues.colours.len() > queues.shown.len() {
        let all = steps(&outcome.observed.held, gpus);
        picture.area(&below, &all, "hsl(0 0% 60%)");
    }
    picture.finish()
}

/// GPU assignment over time by queue, for the chosen hosts.
pub(super) fn gantt(scenario: &Scenario, outcome: &Outcome, queues: &QueueColours) -> String {
    let chart = &outcome.observed.gantt;
    let rows = chart.rows.len().max(1);
    let height = ROW_HEIGHT * float(rows as u64);
    let time = time_axis(std::slice::from_ref(outcome));
    let mut picture = Picture::new(time, Axis::rows(rows), height);
    let end_ms = outcome.observed.end_ms.max(1);
    let column_days = seconds(end_ms) / DAY_S / float(COLUMNS as u64);
    let mut by_row: Vec<Vec<Bar>> = vec![Vec::new(); rows];
    for bar in &chart.bars {
        by_row[bar.row].push(*bar);
    }
    for (row, bars) in by_row.iter().enumerate() {
        if let Some(host) = chart.rows.get(row).and_then(|name| name.strip_suffix("/0")) {
            picture.row_name(row, host);
        }
        for run in runs(&cells(bars, end_ms)) {
            let (from, to) = (float(run.from as u64), float(run.to as u64));
            let record = &outcome.records[run.job];
            let name = if run.is_whole_job {
                format!("{}, {} GPUs", scenario.jobs[run.job].name, record.gpus)
            } else {
                format!("short jobs of {}", outcome.queues[record.queue])
            };
            let span = (from * column_days, to * column_days);
            picture.bar(row, span, &queues.colours[record.queue], &name);
        }
    }
    picture.finish()
}

/// The job with the largest part of each column of a row.
fn cells(bars: &[Bar], end_ms: u64) -> Vec<Option<usize>> {
    let mut cells: Vec<Option<(u64, usize)>> = vec![None; COLUMNS];
    let columns = COLUMNS as u64;
    let start_of = |column: u64| end_ms * column / columns;
    for bar in bars {
        let first = bar.from_ms * columns / end_ms;
        let last = (bar.to_ms * columns).div_ceil(end_ms).min(columns);
        for (cell, column) in (first..last).filter_map(|column| {
            let position = usize::try_from(column).ok()?;
            Some((position, column))
        }) {
            let from_ms = bar.from_ms.max(start_of(column));
            let overlap_ms = bar.to_ms.min(start_of(column + 1)).saturating_sub(from_ms);
            if cells[cell].is_none_or(|(most_ms, _)| overlap_ms > most_ms) {
                cells[cell] = Some((overlap_ms, bar.job));
            }
        }
    }
    let jobs = cells.into_iter();
    jobs.map(|cell| cell.map(|(_, job)| job)).collect()
}

/// Adjacent columns of a row that are drawn as one bar.
struct ColumnRun {
    from: usize,
    to: usize,
    job: usize,
    is_whole_job: bool,
}

/// Joins columns of the same job.
fn runs(cells: &[Option<usize>]) -> Vec<ColumnRun> {
    let mut runs = Vec::new();
    let mut from = 0;
    for same in cells.chunk_by(|a, b| a == b) {
        let to = from + same.len();
        if let Some(job) = same[0] {
            runs.push(ColumnRun {
                from,
                to,
                job,
                is_whole_job: same.len() >= COLUMNS_OF_JOB_MIN,
            });
        }
        from = to;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_belongs_to_the_job_that_has_most_of_it() {
        let bar = |job, from_ms, to_ms| Bar {
            row: 0,
            job,
            from_ms,
            to_ms,
        };
        let end_ms = COLUMNS as u64 * 10;
        let cells = cells(&[bar(7, 0, 14), bar(8, 14, 30)], end_ms);
        assert_eq!(cells[..4], [Some(7), Some(8), Some(8), None]);
        assert_eq!(runs(&cells).len(), 2);
    }
}
