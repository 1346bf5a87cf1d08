//! Report as files: `report.json`, `groups.csv`, `jobs.csv.gz`, `series.csv` and `report.html`.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::measure::{JobRecord, SizeBucket};
use crate::report::figures::{Group, JobFigures, Spread};
use crate::report::numbers::{float, gpu_hours, seconds};
use crate::report::{Report, RunReport, html};
use crate::workload::Scenario;
use crate::world::Outcome;

/// A report that cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file or folder cannot be written.
    #[error("writing {}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// A table cannot be written.
    #[error("writing a table as CSV")]
    Table(#[from] csv::Error),
    /// A table cannot be compressed.
    #[error("packing a table")]
    Pack(#[source] io::Error),
    /// The figures cannot be written as JSON.
    #[error("writing the figures as JSON")]
    Json(#[from] serde_json::Error),
}

impl Report<'_> {
    /// Writes all files into a folder, which is created if missing; returns their paths.
    ///
    /// # Errors
    /// [`ReportError`] names the file.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>, ReportError> {
        let write = |path: &Path, bytes: &[u8]| {
            fs::write(path, bytes).map_err(|source| ReportError::Write {
                path: path.to_owned(),
                source,
            })
        };
        fs::create_dir_all(folder).map_err(|source| ReportError::Write {
            path: folder.to_owned(),
            source,
        })?;
        let path = |name: &str| folder.join(name);
        let (json, page) = (path("report.json"), path("report.html"));
        write(&json, &serde_json::to_vec_pretty(self)?)?;
        write(&page, html::page(self).as_bytes())?;
        let groups = path("groups.csv");
        write(&groups, &table(&GROUP_COLUMNS, &self.group_lines())?)?;
        let series = path("series.csv");
        write(&series, &table(&SERIES_COLUMNS, &self.series_lines())?)?;
        let jobs = path("jobs.csv.gz");
        let lines = table(&JOB_COLUMNS, &self.job_lines())?;
        write(&jobs, &packed(&lines).map_err(ReportError::Pack)?)?;
        Ok(vec![page, json, groups, series, jobs])
    }

    fn group_lines(&self) -> Vec<Vec<String>> {
        self.runs.iter().flat_map(run_lines).collect()
    }

    fn job_lines(&self) -> Vec<Vec<String>> {
        let outcomes = self.outcomes.iter();
        outcomes
            .flat_map(|outcome| {
                let records = outcome.records.iter().enumerate();
                records.map(|(job, record)| job_line(self.scenario, outcome, job, record))
            })
            .collect()
    }

    fn series_lines(&self) -> Vec<Vec<String>> {
        self.outcomes.iter().flat_map(outcome_lines).collect()
    }
}

/// A table as CSV.
pub(crate) fn table(columns: &[&str], lines: &[Vec<String>]) -> Result<Vec<u8>, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(columns)?;
    for line in lines {
        writer.write_record(line)?;
    }
    writer
        .into_inner()
        .map_err(|error| csv::Error::from(error.into_error()))
}

/// Bytes compressed with gzip, without a timestamp, so that the result is always the same.
fn packed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

const GROUP_COLUMNS: [&str; 21] = [
    "policy",
    "kind",
    "group",
    "jobs",
    "placed",
    "finished",
    "unfinished",
    "delay_mean_s",
    "delay_p50_s",
    "delay_p99_s",
    "delay_max_s",
    "completion_mean_s",
    "completion_p50_s",
    "completion_p99_s",
    "completion_max_s",
    "slowdown_mean",
    "preemptions",
    "moves",
    "interruptions",
    "done_gpu_hours",
    "lost_gpu_hours",
];

fn run_lines(run: &RunReport) -> Vec<Vec<String>> {
    let line = |kind: &str, name: &str, jobs: &JobFigures| {
        let mut line = vec![run.policy.to_owned(), kind.to_owned(), name.to_owned()];
        line.extend(figures(jobs));
        line
    };
    let of = |kind: &'static str, groups: &[Group]| {
        let groups = groups.iter();
        groups
            .map(|group| line(kind, &group.name, &group.jobs))
            .collect::<Vec<_>>()
    };
    let mut lines = vec![line("all", "", &run.all)];
    lines.extend(of("gpus", &run.by_size));
    lines.extend(of("queue", &run.by_queue));
    lines
}

fn figures(jobs: &JobFigures) -> Vec<String> {
    let mut fields: Vec<String> = [jobs.jobs, jobs.placed, jobs.finished, jobs.unfinished]
        .map(|count| count.to_string())
        .into();
    fields.extend(spread(jobs.delay));
    fields.extend(spread(jobs.completion));
    fields.push(optional(jobs.slowdown_mean));
    fields
        .extend([jobs.preemptions, jobs.moves, jobs.interruptions].map(|count| count.to_string()));
    fields.extend([jobs.done_gpu_hours, jobs.lost_gpu_hours].map(|hours| format!("{hours:.3}")));
    fields
}

fn spread(spread: Option<Spread>) -> [String; 4] {
    spread.map_or_else(Default::default, |spread| {
        [spread.mean_s, spread.p50_s, spread.p99_s, spread.max_s]
            .map(|seconds| format!("{seconds:.3}"))
    })
}

fn optional(value: Option<f64>) -> String {
    value.map_or_else(String::new, |value| format!("{value:.3}"))
}

const JOB_COLUMNS: [&str; 15] = [
    "policy",
    "job_id",
    "queue",
    "gpus",
    "size",
    "submit_s",
    "first_placed_s",
    "finished_s",
    "delay_s",
    "completion_s",
    "preemptions",
    "moves",
    "interruptions",
    "lost_gpu_hours",
    "end",
];

fn job_line(scenario: &Scenario, outcome: &Outcome, job: usize, record: &JobRecord) -> Vec<String> {
    let time = |ms: Option<u64>| optional(ms.map(seconds));
    vec![
        outcome.policy.name().to_owned(),
        scenario.jobs[job].name.clone(),
        outcome.queues[record.queue].clone(),
        record.gpus.to_string(),
        SizeBucket::of(record.gpus).name().to_owned(),
        time(Some(record.submitted_ms)),
        time(record.first_placed_ms),
        time(record.finished_ms),
        time(record.delay_ms()),
        time(record.completion_ms()),
        record.preemptions.to_string(),
        record.moves.to_string(),
        record.interruptions.to_string(),
        format!("{:.3}", gpu_hours(record.lost_gpu_ms())),
        record.end.name().to_owned(),
    ]
}

const SERIES_COLUMNS: [&str; 6] = [
    "policy",
    "from_s",
    "gpus_held",
    "gpus_free",
    "jobs_waiting",
    "gpus_wanted_by_waiting_jobs",
];

fn outcome_lines(outcome: &Outcome) -> Vec<Vec<String>> {
    let observed = &outcome.observed;
    let series = [
        &observed.held,
        &observed.free,
        &observed.waiting_jobs,
        &observed.waiting_gpus,
    ];
    let averages = series.map(super::Series::averages);
    let slice_s = seconds(observed.held.slice_ms());
    (0..averages[0].len())
        .map(|slice| {
            let from_s = float(slice as u64) * slice_s;
            let mut line = vec![outcome.policy.name().to_owned(), format!("{from_s:.0}")];
            let values = averages.iter().map(|averages| averages.get(slice).copied());
            line.extend(values.map(optional));
            line
        })
        .collect()
}
