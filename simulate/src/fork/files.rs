//! Files with a what-if answer: `report.html`, `what-if.json`, `jobs.csv` and `stops.csv`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::fork::{Difference, JobDifference, JobOutcome, StopDifference};
use crate::report::{ReportError, table};

const JOB_COLUMNS: [&str; 14] = [
    "job",
    "name",
    "user",
    "queue",
    "priority",
    "gpus",
    "estimate",
    "effect",
    "start_now_ms",
    "start_then_ms",
    "end_now_ms",
    "end_then_ms",
    "hosts_now",
    "hosts_then",
];
const STOP_COLUMNS: [&str; 10] = [
    "job",
    "name",
    "unit",
    "at_ms",
    "reason",
    "by",
    "gpus",
    "lost_gpu_seconds",
    "back_ms",
    "back_on",
];
/// Separator between hosts in one field.
const SEPARATOR: &str = "|";

impl Difference {
    /// Writes all files into a folder, which is created if missing; returns their paths.
    ///
    /// # Errors
    /// [`ReportError`] names the file.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>, ReportError> {
        let failed = |path: &Path, source| ReportError::Write {
            path: path.to_owned(),
            source,
        };
        fs::create_dir_all(folder).map_err(|source| failed(folder, source))?;
        let jobs: Vec<_> = self
            .submitted
            .iter()
            .chain(&self.affected)
            .map(job_line)
            .collect();
        let stops: Vec<_> = self.stops.iter().map(stop_line).collect();
        let files = [
            ("report.html", self.page().into_bytes()),
            ("what-if.json", serde_json::to_vec_pretty(self)?),
            ("jobs.csv", table(&JOB_COLUMNS, &jobs)?),
            ("stops.csv", table(&STOP_COLUMNS, &stops)?),
        ];
        let mut paths = Vec::new();
        for (name, bytes) in files {
            let path = folder.join(name);
            fs::write(&path, bytes).map_err(|source| failed(&path, source))?;
            paths.push(path);
        }
        Ok(paths)
    }
}

fn job_line(job: &JobDifference) -> Vec<String> {
    let now = job.now.as_ref();
    let mut cells = job.labels();
    cells.extend([
        job.estimate.name().to_owned(),
        job.effect.text().to_owned(),
        number(now.and_then(|fate| fate.start_ms)),
        number(job.then.start_ms),
        number(now.and_then(|fate| fate.end_ms)),
        number(job.then.end_ms),
        now.map(hosts).unwrap_or_default(),
        hosts(&job.then),
    ]);
    cells
}

fn stop_line(stop: &StopDifference) -> Vec<String> {
    vec![
        stop.job.to_string(),
        stop.name.clone(),
        stop.unit.to_string(),
        stop.at_ms.to_string(),
        stop.reason.clone(),
        number(stop.by),
        stop.gpus.to_string(),
        stop.lost_gpu_seconds.to_string(),
        number(stop.back_ms),
        stop.back_on.join(SEPARATOR),
    ]
}

fn hosts(fate: &JobOutcome) -> String {
    let hosts: Vec<&str> = fate.places.iter().map(|place| &*place.host).collect();
    hosts.join(SEPARATOR)
}

/// A number; empty for `None`.
fn number(number: Option<u64>) -> String {
    number.map(|number| number.to_string()).unwrap_or_default()
}
