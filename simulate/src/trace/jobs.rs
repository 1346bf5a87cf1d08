//! Job files `*_jobs.csv[.gz]` with one job per line, in order of submission.

use std::collections::BTreeSet;
use std::path::Path;

use crate::trace::TraceError;
use crate::trace::table::{Column, Row, Table};

const SCHEMA: [Column; 14] = [
    Column::required("job_id"),
    Column::required("submit_s"),
    Column::required("duration_s"),
    Column::required("num_tasks"),
    Column::required("gpus_per_task"),
    Column::optional("cpus_per_task"),
    Column::optional("mem_mib_per_task"),
    Column::optional("gpu_type"),
    Column::optional("vc"),
    Column::optional("user"),
    Column::optional("final_status"),
    Column::optional("attempts"),
    Column::optional("priority_or_qos"),
    Column::optional("gpu_milli"),
];

/// Separates the GPU models that a job accepts.
const MODEL_SEPARATOR: char = '|';

/// End of a job in the original cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Success.
    Pass,
    /// Killed by a user.
    Killed,
    /// Its own failure.
    Failed,
}

/// One job of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceJob {
    /// Unique name in the trace.
    pub name: String,
    /// Submission in milliseconds on the trace's clock.
    pub submit_ms: u64,
    /// Run time in milliseconds.
    pub duration_ms: Option<u64>,
    /// Number of tasks; at least 1.
    pub tasks: u32,
    /// Whole GPUs per task; 0 for a job without GPUs.
    pub gpus_per_task: u32,
    /// CPUs per task, in thousandths.
    pub cpus_milli_per_task: Option<u32>,
    /// Memory per task, in MiB.
    pub memory_mib_per_task: Option<u64>,
    /// Accepted GPU models; empty if the source does not say.
    pub gpu_models: Vec<String>,
    /// Virtual cluster, group or application.
    pub queue: Option<String>,
    /// The submitting user.
    pub user: Option<String>,
    /// End of the job.
    pub ending: Option<Ending>,
    /// Number of attempts.
    pub attempts: Option<u32>,
    /// Priority as a number, or the name of a service class.
    pub service_class: Option<String>,
    /// Requested fraction of one GPU in thousandths, if a task requested less than a whole one.
    pub gpu_milli: Option<u32>,
}

impl TraceJob {
    /// Total GPUs.
    #[must_use]
    pub const fn gpus(&self) -> u32 {
        self.tasks.saturating_mul(self.gpus_per_task)
    }
}

/// Reads `count` jobs of a trace, starting with the `first`.
///
/// # Errors
/// [`TraceError`] names the file, the line and the column: unknown or missing columns, fields that are not
/// numbers, lines that are not in order of submission, duplicate names.
pub fn read_jobs(path: &Path, first: usize, count: usize) -> Result<Vec<TraceJob>, TraceError> {
    let mut jobs: Vec<TraceJob> = Vec::new();
    let mut names = BTreeSet::new();
    for row in Table::open(path, &SCHEMA)?.skip(first).take(count) {
        let row = row?;
        let job = job(&row)?;
        if jobs
            .last()
            .is_some_and(|before| before.submit_ms > job.submit_ms)
        {
            return Err(row.wrong("submit_s", "is before the line above: sort the file by it"));
        }
        if !names.insert(job.name.clone()) {
            return Err(row.wrong("job_id", "is a duplicate"));
        }
        jobs.push(job);
    }
    Ok(jobs)
}

fn job(row: &Row) -> Result<TraceJob, TraceError> {
    let duration_ms = match row.text("duration_s") {
        "" => None,
        _ => Some(row.seconds_ms("duration_s")?),
    };
    let cpus_milli_per_task = match row.text("cpus_per_task") {
        "" => None,
        _ => Some(row.milli("cpus_per_task")?),
    };
    let tasks = row.number("num_tasks")?;
    if tasks == 0 {
        return Err(row.wrong("num_tasks", "must be at least 1"));
    }
    let models = row.text("gpu_type").split(MODEL_SEPARATOR).map(str::trim);
    Ok(TraceJob {
        name: row.name("job_id")?,
        submit_ms: row.seconds_ms("submit_s")?,
        duration_ms,
        tasks,
        gpus_per_task: row.number("gpus_per_task")?,
        cpus_milli_per_task,
        memory_mib_per_task: row.optional_number("mem_mib_per_task")?,
        gpu_models: models
            .filter(|model| !model.is_empty())
            .map(str::to_owned)
            .collect(),
        queue: row.optional_text("vc"),
        user: row.optional_text("user"),
        ending: ending(row)?,
        attempts: row.optional_number("attempts")?,
        service_class: row.optional_text("priority_or_qos"),
        gpu_milli: row.optional_number("gpu_milli")?,
    })
}

fn ending(row: &Row) -> Result<Option<Ending>, TraceError> {
    Ok(Some(match row.text("final_status") {
        "" => return Ok(None),
        "pass" => Ending::Pass,
        "killed" => Ending::Killed,
        "failed" => Ending::Failed,
        _ => return Err(row.wrong("final_status", "must be pass, killed or failed")),
    }))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::io::Write;

    use super::*;

    const NAMES: &str = "job_id,submit_s,duration_s,num_tasks,gpus_per_task";

    fn read(lines: &[&str]) -> Result<Vec<TraceJob>, TraceError> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for line in lines {
            writeln!(file, "{line}").unwrap();
        }
        read_jobs(file.path(), 0, usize::MAX)
    }

    fn refused(lines: &[&str]) -> String {
        let text = read(lines).unwrap_err().to_string();
        let (_, what) = text.split_once(": ").unwrap();
        what.to_owned()
    }

    #[test]
    fn columns_are_found_by_name_and_rows_by_position() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "vc,{NAMES}").unwrap();
        writeln!(file, "a,philly-0,0,3600,1,1").unwrap();
        writeln!(file, ",philly-1,7,60,2,8").unwrap();
        let jobs = read_jobs(file.path(), 1, 10).unwrap();
        assert_eq!(jobs.len(), 1);
        assert_eq!(
            (jobs[0].name.as_str(), jobs[0].submit_ms, jobs[0].gpus()),
            ("philly-1", 7_000, 16)
        );
        assert_eq!(jobs[0].queue, None);
    }

    #[test]
    fn every_column_is_read() {
        let jobs = read(&[
            "job_id,submit_s,duration_s,num_tasks,gpus_per_task,cpus_per_task,mem_mib_per_task,gpu_type,vc,user,\
             final_status,attempts,priority_or_qos,gpu_milli",
            "a,1,2.5,3,4,3.152,4096,V100M16|V100M32,team,ada,killed,2,LS,460",
        ]);
        let expected = TraceJob {
            name: "a".to_owned(),
            submit_ms: 1_000,
            duration_ms: Some(2_500),
            tasks: 3,
            gpus_per_task: 4,
            cpus_milli_per_task: Some(3_152),
            memory_mib_per_task: Some(4_096),
            gpu_models: vec!["V100M16".to_owned(), "V100M32".to_owned()],
            queue: Some("team".to_owned()),
            user: Some("ada".to_owned()),
            ending: Some(Ending::Killed),
            attempts: Some(2),
            service_class: Some("LS".to_owned()),
            gpu_milli: Some(460),
        };
        assert_eq!(jobs.unwrap(), [expected]);
    }

    #[test]
    fn seconds_may_have_a_fraction_and_durations_may_be_missing() {
        let jobs = read(&[
            NAMES,
            "philly-13,1243820,4045910.0,1,1",
            "philly-14,1243821.4,,1,1",
        ])
        .unwrap();
        let times: Vec<_> = jobs
            .iter()
            .map(|job| (job.submit_ms, job.duration_ms))
            .collect();
        assert_eq!(
            times,
            [(1_243_820_000, Some(4_045_910_000)), (1_243_821_400, None)]
        );
    }

    #[test]
    fn a_damaged_field_is_named_with_its_line_and_column() {
        for damaged in ["soon", "-1", "NaN", "1e300", "inf"] {
            let line = format!("philly-0,0,{damaged},1,1");
            let text = refused(&[NAMES, &line]);
            assert!(
                text.starts_with(&format!("line 2: duration_s: `{damaged}` is ")),
                "{text}"
            );
        }
        assert_eq!(
            refused(&[NAMES, "a,0,1,0,1"]),
            "line 2: num_tasks: `0` must be at least 1"
        );
        assert_eq!(refused(&[NAMES, ",0,1,1,1"]), "line 2: job_id: `` is empty");
    }

    #[test]
    fn unknown_and_missing_columns_are_named() {
        let text = refused(&["job_id,submit_s,duration_s,num_tasks,gpus"]);
        assert!(text.starts_with("line 1: unknown column `gpus`"), "{text}");
        assert_eq!(
            refused(&["job_id,submit_s,duration_s,num_tasks"]),
            "line 1: the column `gpus_per_task` is missing"
        );
        assert_eq!(
            refused(&[&format!("{NAMES},job_id"), "a,5,1,1,1,a"]),
            "line 1: the column `job_id` is named twice"
        );
    }

    #[test]
    fn a_line_of_another_length_is_reported_with_both_lengths() {
        assert_eq!(
            refused(&[NAMES, "a,5,1,1,1", "b,5,1,1"]),
            "line 3: has 4 fields, and line 1 names 5 columns"
        );
    }

    #[test]
    fn a_file_out_of_order_is_refused() {
        assert_eq!(
            refused(&[NAMES, "a,5,1,1,1", "b,4,1,1,1"]),
            "line 3: submit_s: `4` is before the line above: sort the file by it"
        );
        assert_eq!(
            refused(&[NAMES, "a,5,1,1,1", "a,5,1,1,1"]),
            "line 3: job_id: `a` is a duplicate"
        );
    }

    #[test]
    fn all_jobs_of_the_philly_trace_are_read() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../shared/data/traces/philly_jobs.csv.gz");
        if !path.exists() {
            tracing::warn!(path = %path.display(), "skipped: trace not found");
            return;
        }
        let jobs = read_jobs(&path, 0, usize::MAX).unwrap();
        assert_eq!(jobs.len(), 111_549);
        let single = jobs.iter().filter(|job| job.gpus() == 1).count();
        assert_eq!(single, 96_662, "86.7 % of the jobs ask for one GPU");
        let labelled = jobs.iter().filter(|job| job.queue.is_some()).count();
        assert_eq!(labelled, 92_718, "83 % name their virtual cluster");
    }
}
