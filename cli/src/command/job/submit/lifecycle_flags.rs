//! What a job says about its own life, by flags. Rules for the ends of its tasks are for job files.

use clap::Args;
use muster_proto::v1;

use crate::job_file::LifecycleFile;

/// What a job says about its own life.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Lifecycle")]
pub(super) struct LifecycleFlags {
    /// Run at most so many tasks at a time (all)
    #[arg(long, value_name = "COUNT", conflicts_with = "gang")]
    at_once: Option<u32>,
    /// Wait until these jobs have succeeded, comma separated
    #[arg(long, value_name = "JOBS", value_delimiter = ',')]
    after_ok: Vec<u64>,
    /// Wait until these jobs have ended, comma separated
    #[arg(long, value_name = "JOBS", value_delimiter = ',')]
    after_any: Vec<u64>,
    /// Wait until these jobs have failed or been cancelled, comma separated
    #[arg(long, value_name = "JOBS", value_delimiter = ',')]
    after_failed: Vec<u64>,
    /// Begin so many retries in a row at once on the hosts the job has (0)
    #[arg(long, value_name = "COUNT")]
    local_retries: Option<u32>,
    /// Fail after so many attempts in a row without a newer checkpoint; 0: never (3 once there is one)
    #[arg(long, value_name = "COUNT")]
    attempts_without_progress: Option<u32>,
}

impl LifecycleFlags {
    /// Each flag, and whether it is given.
    pub(super) fn given(&self) -> [(&'static str, bool); 6] {
        [
            ("--at-once", self.at_once.is_some()),
            ("--after-ok", !self.after_ok.is_empty()),
            ("--after-any", !self.after_any.is_empty()),
            ("--after-failed", !self.after_failed.is_empty()),
            ("--local-retries", self.local_retries.is_some()),
            (
                "--attempts-without-progress",
                self.attempts_without_progress.is_some(),
            ),
        ]
    }

    /// What the job says.
    pub(super) fn lifecycle(&self) -> v1::Lifecycle {
        LifecycleFile {
            tasks_at_once_max: self.at_once,
            after_ok: self.after_ok.clone(),
            after_any: self.after_any.clone(),
            after_failed: self.after_failed.clone(),
            rules: Vec::new(),
            local_retries_max: self.local_retries,
            attempts_without_progress_max: self.attempts_without_progress,
            checkpoints: None,
        }
        .into()
    }
}

/// The flag that sets a field of the specification.
pub(super) fn flag_of(field: &str) -> Option<&'static str> {
    let flags = [
        ("lifecycle.tasks_at_once_max", "--at-once"),
        ("lifecycle.after", "--after-ok, --after-any, --after-failed"),
        ("lifecycle.local_retries_max", "--local-retries"),
        (
            "lifecycle.attempts_without_progress_max",
            "--attempts-without-progress",
        ),
    ];
    let flag = flags.iter().find(|(name, _)| field.starts_with(name));
    flag.map(|(_, flag)| *flag)
}
