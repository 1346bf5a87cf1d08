//! Reader of the common trace schema (`philly_jobs.csv.gz`): one job a line, by column name.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;

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

#[derive(serde::Deserialize)]
struct Row {
    job_id: String,
    submit_s: u64,
    duration_s: u64,
    num_tasks: u32,
    gpus_per_task: u32,
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
    fn a_damaged_line_is_named() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "job_id,submit_s,duration_s,num_tasks,gpus_per_task").unwrap();
        writeln!(file, "philly-0,0,soon,1,1").unwrap();
        let TraceError::Read { source, .. } = read_philly(file.path(), 0, 10).unwrap_err() else {
            panic!("opened")
        };
        assert!(source.to_string().contains("line: 2"), "{source}");
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
        assert_eq!(
            single * 1_000 / jobs.len(),
            867,
            "86.7 % of the jobs ask for one GPU"
        );
    }
}
