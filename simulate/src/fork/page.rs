//! HTML page with a what-if answer, with both futures next to each other.

use muster_engine::effects::{NamedJobs, QueueEffect, QueueEffectKind};
use muster_text::{Line, Page, Plot, Table};

use crate::fork::timeline::Timeline;
use crate::fork::{Difference, JobDifference, JobOutcome, StopDifference, Totals};
use crate::report::{seconds, span};

const SUM_TITLES: [&str; 3] = ["", "now", "then"];
const JOB_TITLES: [&str; 12] = [
    "job",
    "name",
    "user",
    "queue",
    "priority",
    "GPUs",
    "effect",
    "start now",
    "start then",
    "hosts now",
    "hosts then",
    "run time",
];
const STOP_TITLES: [&str; 10] = [
    "job",
    "name",
    "unit",
    "when",
    "why",
    "for job",
    "GPUs",
    "lost GPU time",
    "back",
    "on",
];
const QUEUE_TITLES: [&str; 7] = [
    "queue",
    "change",
    "unfinished jobs",
    "cells lost",
    "running jobs over a limit",
    "waiting jobs too large",
    "jobs that lose their cells",
];
/// Maximum number of hosts listed in one field.
const HOSTS_NAMED_MAX: usize = 8;

impl Difference {
    /// The whole page.
    pub(super) fn page(&self) -> String {
        let mut page = Page::titled("Muster what-if");
        page.sentences(&self.sentences());
        let sums = sums(self.now, self.then);
        page.table(&Table::of_numbers(&SUM_TITLES).with_rows(sums));
        let (now, then) = (&self.now_over_time, &self.then_over_time);
        page.heading("GPUs in use");
        page.plot(&plot("GPUs in use", now, then, Timeline::held_line));
        page.heading("Waiting jobs");
        page.plot(&plot("waiting jobs", now, then, Timeline::waiting_line));
        page.heading("Jobs");
        page.sentences(&[format!(
            "{} submitted, {} others affected, {} not.",
            self.submitted.len(),
            self.affected.len(),
            self.unaffected
        )]);
        let jobs = self.submitted.iter().chain(&self.affected);
        page.table(&Table::of_numbers(&JOB_TITLES).with_rows(jobs.map(job_cells)));
        page.heading("Attempts stopped for it");
        let stops = self.stops.iter().map(stop_cells);
        match self.stops.is_empty() {
            true => page.sentences(&["None.".to_owned()]),
            false => page.table(&Table::of_numbers(&STOP_TITLES).with_rows(stops)),
        }
        if !self.queues.is_empty() {
            page.heading("Queues");
            let queues = self.queues.iter().map(queue_cells);
            page.table(&Table::of_numbers(&QUEUE_TITLES).with_rows(queues));
        }
        page.finish()
    }

    fn sentences(&self) -> [String; 2] {
        let assumptions = self.assumptions;
        let assumed = match assumptions.assumed_run_ms {
            Some(ms) => format!("to run {}", time(ms)),
            None => "never to end".to_owned(),
        };
        [
            format!(
                "The cluster's state at revision {}, simulated {} ahead twice: unchanged (now), and \
                 with the changes (then). Times count from the fork.",
                self.revision,
                time(self.horizon_ms)
            ),
            format!(
                "Run times: {} jobs by time limit, {} by usual run time, {} assumed {assumed}.",
                assumptions.time_limit, assumptions.usual, assumptions.assumed
            ),
        ]
    }
}

fn sums(now: Totals, then: Totals) -> Vec<Vec<String>> {
    let row = |title: &str, show: &dyn Fn(Totals) -> String| {
        vec![title.to_owned(), show(now), show(then)]
    };
    vec![
        row("GPUs in use", &|it| {
            format!("{:.1} %", it.utilisation * 100.0)
        }),
        row("mean wait", &|it| span(it.mean_wait_seconds)),
        row("job hours waited", &|it| {
            format!("{:.2}", it.waiting_job_hours)
        }),
        row("jobs started", &|it| it.jobs_started.to_string()),
        row("jobs finished", &|it| it.jobs_finished.to_string()),
        row("attempts stopped", &|it| it.stops.to_string()),
        row("GPU hours lost", &|it| format!("{:.2}", it.lost_gpu_hours)),
    ]
}

/// Both futures over time.
fn plot(
    label: &str,
    now: &Timeline,
    then: &Timeline,
    line: fn(&Timeline) -> Vec<(f64, f64)>,
) -> Plot {
    let line = |name: &str, timeline: &Timeline| Line {
        name: name.to_owned(),
        points: line(timeline),
    };
    Plot {
        x_label: "hours after the fork".to_owned(),
        y_label: label.to_owned(),
        x_from: 0.0,
        lines: vec![line("now", now), line("then", then)],
    }
}

fn job_cells(job: &JobDifference) -> Vec<String> {
    let now = job.now.as_ref();
    let mut cells = job.labels();
    cells.extend([
        job.effect.text().to_owned(),
        now.map_or_else(dash, start),
        start(&job.then),
        now.map_or_else(dash, hosts),
        hosts(&job.then),
        job.estimate.name().to_owned(),
    ]);
    cells
}

fn stop_cells(stop: &StopDifference) -> Vec<String> {
    vec![
        stop.job.to_string(),
        stop.name.clone(),
        stop.unit.to_string(),
        format!("after {}", time(stop.at_ms)),
        stop.reason.clone(),
        stop.by.map_or_else(dash, |job| job.to_string()),
        stop.gpus.to_string(),
        time(stop.lost_gpu_seconds * 1_000),
        { stop.back_ms }.map_or_else(|| "not".to_owned(), |ms| format!("after {}", time(ms))),
        named(stop.back_on.iter().map(String::as_str)),
    ]
}

fn queue_cells(queue: &QueueEffect) -> Vec<String> {
    let change = match queue.change {
        QueueEffectKind::Added => "added",
        QueueEffectKind::Changed => "changed",
        QueueEffectKind::Retired => "retired",
    };
    let jobs = |jobs: &NamedJobs| jobs.total.to_string();
    vec![
        queue.name.clone(),
        change.to_owned(),
        queue.live_jobs.to_string(),
        queue.cells_lost.to_string(),
        jobs(&queue.jobs_over_limit),
        jobs(&queue.jobs_too_large),
        jobs(&queue.downgraded),
    ]
}

fn start(fate: &JobOutcome) -> String {
    fate.start_text(|start_ms| format!("after {}", time(start_ms)))
}

/// Hosts on which a job's first waiting unit starts.
fn hosts(fate: &JobOutcome) -> String {
    named(fate.places.iter().map(|place| place.host.as_str()))
}

fn named<'h>(hosts: impl ExactSizeIterator<Item = &'h str>) -> String {
    let more = hosts.len().saturating_sub(HOSTS_NAMED_MAX);
    let names: Vec<&str> = hosts.take(HOSTS_NAMED_MAX).collect();
    match (names.len(), more) {
        (0, _) => dash(),
        (_, 0) => names.join(", "),
        _ => format!("{} and {more} more", names.join(", ")),
    }
}

fn time(ms: u64) -> String {
    span(seconds(ms))
}

fn dash() -> String {
    "-".to_owned()
}
