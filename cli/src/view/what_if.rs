//! Predicted effect of a change as text. Programs receive the answer itself.

use muster_documents::QueueChange;
use muster_scheduler::view::effect_to_wire;
use muster_simulate::fork::{
    Difference, Effect, JobDifference, JobOutcome, StopDifference, Totals,
};

use crate::output::{Cell, Column, Table, Tone, counted, paint, span};
use crate::view::queue_changes::render_changes;

/// Rows of one table at most; `-o json` and `--report` contain all.
const ROWS_MAX: usize = 40;

/// The answer to a what-if.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WhatIfView<'a>(&'a Difference);

const JOB_COLUMNS: &[Column] = &[
    Column::new("JOB"),
    Column::new("NAME"),
    Column::wide("USER"),
    Column::new("QUEUE"),
    Column::wide("PRIORITY"),
    Column::new("GPUS"),
    Column::new("EFFECT"),
    Column::new("START NOW"),
    Column::new("START THEN"),
    Column::new("HOSTS NOW"),
    Column::new("HOSTS THEN"),
    Column::new("RUN TIME"),
];
const STOP_COLUMNS: &[Column] = &[
    Column::new("JOB"),
    Column::new("NAME"),
    Column::new("UNIT"),
    Column::new("WHEN"),
    Column::new("WHY"),
    Column::new("FOR JOB"),
    Column::new("GPUS"),
    Column::new("LOST GPU TIME"),
    Column::new("BACK"),
    Column::new("ON"),
];
const TOTAL_COLUMNS: &[Column] = &[Column::new(""), Column::new("NOW"), Column::new("THEN")];

impl<'a> WhatIfView<'a> {
    /// A view of an answer.
    pub(crate) const fn new(difference: &'a Difference) -> Self {
        Self(difference)
    }

    /// Complete text.
    pub(crate) fn render(&self, wide: bool) -> String {
        let difference = self.0;
        let mut text = self.head();
        for job in &difference.submitted {
            text.push_str(&self.submitted(job));
        }
        let stops = &difference.stops;
        text.push('\n');
        if stops.is_empty() {
            text.push_str("no attempt is stopped\n");
        } else {
            let count = counted(stops.len() as u64, "attempt");
            text.push_str(&format!("{count} stopped\n"));
            let rows = stops.iter().map(stop_cells);
            text.push_str(&table(STOP_COLUMNS, rows, wide));
        }
        text.push('\n');
        let changed = difference.submitted.iter().chain(&difference.affected);
        let rows: Vec<_> = changed.map(|job| self.job_cells(job)).collect();
        let affected = counted(difference.affected.len() as u64, "other job");
        text.push_str(&format!(
            "{affected} affected, {} not\n",
            difference.unaffected
        ));
        if !rows.is_empty() {
            text.push_str(&table(JOB_COLUMNS, rows.into_iter(), wide));
        }
        text.push_str(&self.queues());
        text.push('\n');
        let rows = total_rows(difference.now, difference.then);
        text.push_str(&table(TOTAL_COLUMNS, rows.into_iter(), wide));
        text
    }

    /// Ids of the affected jobs, one per line.
    pub(crate) fn names(&self) -> String {
        let jobs = self.0.affected.iter();
        jobs.map(|job| format!("{}\n", job.id)).collect()
    }

    fn head(&self) -> String {
        let Difference {
            revision,
            horizon_ms,
            assumptions,
            ..
        } = self.0;
        let assumed = match assumptions.assumed_run_ms {
            Some(ms) => format!("to run {}", span(ms)),
            None => "to never end".to_owned(),
        };
        format!(
            "forked at revision {revision}, played {}; run times of {} known by time limit, of {} \
             by usual run time, of {} assumed {assumed}\n",
            span(*horizon_ms),
            counted(assumptions.time_limit, "job"),
            assumptions.usual,
            assumptions.assumed,
        )
    }

    fn submitted(&self, job: &JobDifference) -> String {
        let fate = &job.then;
        let name = &job.name;
        let horizon = span(self.0.horizon_ms);
        let why = fate.waits_for.as_ref();
        let why = why.map_or_else(String::new, |why| format!(": {why}"));
        let text = match (fate.start_ms, fate.all_started_ms) {
            (None, _) => format!("{name} does not start within {horizon}{why}"),
            (Some(0), Some(0)) => format!("{name} starts at once on {}", hosts(fate)),
            (Some(start_ms), _) if fate.waited_units == 1 => format!(
                "{name} starts in {} on {}{why}",
                span(start_ms),
                hosts(fate)
            ),
            (Some(start_ms), all) => {
                let all = all.map_or_else(
                    || {
                        format!(
                            "{} of {} units within {horizon}",
                            fate.started_units, fate.waited_units
                        )
                    },
                    |all_ms| format!("all of it in {}", span(all_ms)),
                );
                format!(
                    "{name} starts in {} on {}, {all}{why}",
                    span(start_ms),
                    hosts(fate)
                )
            }
        };
        format!(
            "{}\n",
            paint(&text.replace(char::is_control, "\u{fffd}"), Tone::Plain)
        )
    }

    fn job_cells(&self, job: &JobDifference) -> Vec<Cell> {
        let tone = match job.effect {
            Effect::Submitted | Effect::Elsewhere => Tone::Plain,
            Effect::Sooner | Effect::NowStarted => Tone::Good,
            Effect::Later | Effect::Stopped | Effect::Downgraded => Tone::Waiting,
            Effect::StoppedForLong | Effect::NotStarted => Tone::Bad,
        };
        let none = || "-".to_owned();
        vec![
            job.id.to_string().into(),
            (*job.name).into(),
            (*job.user).into(),
            (*job.queue).into(),
            job.priority.to_string().into(),
            job.gpus.to_string().into(),
            Cell::toned(effect(job), tone),
            job.now.as_ref().map_or_else(none, start).into(),
            start(&job.then).into(),
            job.now.as_ref().map_or_else(none, hosts).into(),
            hosts(&job.then).into(),
            job.estimate.name().into(),
        ]
    }

    fn queues(&self) -> String {
        let queues = self.0.queues.iter().cloned();
        let queues: Vec<QueueChange> = queues
            .map(|effect| QueueChange::from(effect_to_wire(effect)))
            .collect();
        if queues.is_empty() {
            return String::new();
        }
        let count = counted(queues.len() as u64, "queue");
        format!("\n{count} changed\n{}", render_changes(&queues))
    }
}

/// How a job's future differs, with the difference of its start.
fn effect(job: &JobDifference) -> String {
    let text = job.effect.text();
    let now = job.now.as_ref().and_then(|fate| fate.start_ms);
    match (job.effect, now, job.then.start_ms) {
        (Effect::Later | Effect::Sooner, Some(now), Some(then)) if now != then => {
            format!("{text} by {}", span(now.abs_diff(then)))
        }
        _ => text.to_owned(),
    }
}

fn start(fate: &JobOutcome) -> String {
    fate.start_text(|start_ms| format!("in {}", span(start_ms)))
}

/// Location of a job's first waiting unit at its start.
fn hosts(fate: &JobOutcome) -> String {
    /// Maximum number of hosts listed per job.
    const NAMED_MAX: usize = 3;
    let names: Vec<&str> = fate.places.iter().map(|place| &*place.host).collect();
    match names.len() {
        0 => "-".to_owned(),
        1..=NAMED_MAX => names.join(","),
        count => format!("{},... ({count})", names[..NAMED_MAX].join(",")),
    }
}

fn stop_cells(stop: &StopDifference) -> Vec<Cell> {
    let none = || "-".to_owned();
    let back = match stop.back_ms {
        Some(back_ms) => (format!("in {}", span(back_ms)), Tone::Plain),
        None => ("not".to_owned(), Tone::Bad),
    };
    let on = if stop.back_on.is_empty() {
        none()
    } else {
        stop.back_on.join(",")
    };
    vec![
        stop.job.to_string().into(),
        (*stop.name).into(),
        stop.unit.to_string().into(),
        format!("in {}", span(stop.at_ms)).into(),
        (*stop.reason).into(),
        stop.by.map_or_else(none, |job| job.to_string()).into(),
        stop.gpus.to_string().into(),
        span(stop.lost_gpu_seconds * 1_000).into(),
        Cell::toned(back.0, back.1),
        on.into(),
    ]
}

fn total_rows(now: Totals, then: Totals) -> Vec<Vec<Cell>> {
    let row = |title: &str, show: &dyn Fn(Totals) -> String| {
        vec![
            Cell::toned(title, Tone::Faint),
            show(now).into(),
            show(then).into(),
        ]
    };
    vec![
        row("GPUs in use", &|it| {
            format!("{:.1} %", it.utilisation * 100.0)
        }),
        row("mean wait", &|it| format!("{:.0} s", it.mean_wait_seconds)),
        row("job hours waited", &|it| {
            format!("{:.2}", it.waiting_job_hours)
        }),
        row("jobs started", &|it| it.jobs_started.to_string()),
        row("jobs finished", &|it| it.jobs_finished.to_string()),
        row("attempts stopped", &|it| it.stops.to_string()),
        row("GPU hours lost", &|it| format!("{:.2}", it.lost_gpu_hours)),
    ]
}

/// An indented table, cut after the first rows.
fn table(columns: &[Column], rows: impl Iterator<Item = Vec<Cell>>, wide: bool) -> String {
    let rows: Vec<_> = rows.collect();
    let more = rows.len().saturating_sub(ROWS_MAX);
    let mut table = Table::new(columns, wide);
    for row in rows.into_iter().take(ROWS_MAX) {
        table.push(row);
    }
    let mut text: String = table
        .render(true)
        .lines()
        .map(|line| format!("  {line}\n"))
        .collect();
    if more > 0 {
        text.push_str(&format!("  and {more} more (-o json has all)\n"));
    }
    text
}
