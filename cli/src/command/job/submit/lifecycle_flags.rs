//! What a job says about its own life, by flags. Rules for the ends of its tasks are for job files.

use clap::Args;
use muster_proto::v1;

use crate::job_file::{LifecycleFile, SuspendFile};

/// What a job says about its own life.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Lifecycle")]
pub(super) struct LifecycleFlags {
    /// Let the gang's members begin one by one, not all of them once all are prepared
    #[arg(long, requires = "gang")]
    no_barrier: bool,
    /// How the job is suspended (keep)
    #[arg(long, value_enum, value_name = "MODE")]
    suspend: Option<SuspendFile>,
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
}

impl LifecycleFlags {
    /// Each flag, and whether it is given.
    pub(super) fn given(&self) -> [(&'static str, bool); 6] {
        [
            ("--no-barrier", self.no_barrier),
            ("--suspend", self.suspend.is_some()),
            ("--at-once", self.at_once.is_some()),
            ("--after-ok", !self.after_ok.is_empty()),
            ("--after-any", !self.after_any.is_empty()),
            ("--after-failed", !self.after_failed.is_empty()),
        ]
    }

    /// What the job says.
    pub(super) fn lifecycle(&self) -> v1::Lifecycle {
        LifecycleFile {
            suspend: self.suspend,
            barrier: self.no_barrier.then_some(false),
            tasks_at_once_max: self.at_once,
            after_ok: self.after_ok.clone(),
            after_any: self.after_any.clone(),
            after_failed: self.after_failed.clone(),
            rules: Vec::new(),
        }
        .into()
    }
}

/// The flag that sets a field of the specification.
pub(super) fn flag_of(field: &str) -> Option<&'static str> {
    let flags = [
        ("lifecycle.barrier", "--no-barrier"),
        ("lifecycle.suspend", "--suspend"),
        ("lifecycle.tasks_at_once_max", "--at-once"),
        ("lifecycle.after", "--after-ok, --after-any, --after-failed"),
    ];
    let flag = flags.iter().find(|(name, _)| field.starts_with(name));
    flag.map(|(_, flag)| *flag)
}
