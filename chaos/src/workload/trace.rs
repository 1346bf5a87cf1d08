//! Reader of the common trace schema (`philly_jobs.csv.gz`): one job a line, by column name.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::read::GzDecoder;
use serde::Deserialize;
use serde::de::Error as _;

use super::TraceJob;

/// A trace that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened.
    #[error("opening the trace {path}")]
    Open {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A line is damaged, or a column is missing.
    #[error("reading the trace {path}")]
    Read {
        /// Which file.
        path: PathBuf,
        /// Where and why.
        #[source]
        source: csv::Error,
    },
}

#[derive(Deserialize)]
struct Row {
    job_id: String,
    #[serde(deserialize_with = "whole_seconds")]
    submit_s: u64,
    #[serde(deserialize_with = "whole_seconds")]
    duration_s: u64,
    num_tasks: u32,
    gpus_per_task: u32,
}

/// Seconds, which some lines of the published trace give with a fraction (`4045910.0`), rounded to whole ones.
fn whole_seconds<'de, D: serde::Deserializer<'de>>(field: D) -> Result<u64, D::Error> {
    let seconds = f64::deserialize(field)?;
    Duration::try_from_secs_f64(seconds.round())
        .map(|time| time.as_secs())
        .map_err(D::Error::custom)
}

/// Reads `count` jobs of a Philly trace in order of submission, from the `first` on; `.gz` is unpacked.
///
/// # Errors
/// [`TraceError`] names the file and the line.
pub fn read_philly(path: &Path, first: usize, count: usize) -> Result<Vec<TraceJob>, TraceError> {
    let file = File::open(path).map_err(|source| TraceError::Open {
        path: path.to_owned(),
        source,
    })?;
    let bytes: Box<dyn Read> = if path.extension().is_some_and(|extension| extension == "gz") {
        Box::new(GzDecoder::new(BufReader::new(file)))
    } else {
        Box::new(BufReader::new(file))
    };
    csv::Reader::from_reader(bytes)
        .deserialize::<Row>()
        .skip(first)
        .take(count)
        .map(|row| row.map(TraceJob::from))
        .collect::<Result<_, _>>()
        .map_err(|source| TraceError::Read {
            path: path.to_owned(),
            source,
        })
}

impl From<Row> for TraceJob {
    fn from(row: Row) -> Self {
        Self {
            name: row.job_id,
            submit_s: row.submit_s,
            duration_s: row.duration_s,
            tasks: row.num_tasks.max(1),
            gpus_per_task: row.gpus_per_task.max(1),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn columns_are_found_by_name_and_rows_by_position() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(
            file,
            "job_id,submit_s,duration_s,num_tasks,gpus_per_task,vc"
        )
        .unwrap();
        writeln!(file, "philly-0,0,3600,1,1,a").unwrap();
        writeln!(file, "philly-1,7,60,2,8,").unwrap();
        let jobs = read_philly(file.path(), 1, 10).unwrap();
        assert_eq!(jobs.len(), 1);
        assert_eq!(
            (jobs[0].name.as_str(), jobs[0].submit_s, jobs[0].gpus()),
            ("philly-1", 7, 16)
        );
    }

    #[test]
    fn seconds_with_a_fraction_are_rounded() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "job_id,submit_s,duration_s,num_tasks,gpus_per_task").unwrap();
        writeln!(file, "philly-13,1243820,4045910.0,1,1").unwrap();
        writeln!(file, "philly-14,1243821.4,0.6,1,1").unwrap();
        let jobs = read_philly(file.path(), 0, 10).unwrap();
        let times: Vec<_> = jobs
            .iter()
            .map(|job| (job.submit_s, job.duration_s))
            .collect();
        assert_eq!(times, [(1_243_820, 4_045_910), (1_243_821, 1)]);
    }

    #[test]
    fn a_damaged_line_is_named() {
        for damaged in ["soon", "-1", "", "NaN", "1e300"] {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            writeln!(file, "job_id,submit_s,duration_s,num_tasks,gpus_per_task").unwrap();
            writeln!(file, "philly-0,0,{damaged},1,1").unwrap();
            let TraceError::Read { source, .. } = read_philly(file.path(), 0, 10).unwrap_err()
            else {
                panic!("opened")
            };
            assert!(source.to_string().contains("line: 2"), "{source}");
        }
    }

    #[test]
    fn the_real_trace_reads_whole() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../shared/data/traces/philly_jobs.csv.gz");
        if !path.exists() {
            tracing::warn!(path = %path.display(), "skipped: the trace is not here");
            return;
        }
        let jobs = read_philly(&path, 0, usize::MAX).unwrap();
        assert_eq!(jobs.len(), 111_549);
        let single = jobs.iter().filter(|job| job.gpus() == 1).count();
        assert_eq!(single, 96_662, "86.7 % of the jobs ask for one GPU");
    }
}
