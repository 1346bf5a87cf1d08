//! Flags for the lifecycle of a job. Exit rules need a job file.

use std::time::Duration;

use clap::Args;
use muster_proto::v1;

use crate::parse::{self, HumanDuration, HumanSignal};
use muster_job_file::{LifecycleFile, RecipientFile, SuspendFile, WarningFile};

/// Lifecycle of a job.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Lifecycle")]
pub(super) struct LifecycleFlags {
    /// Let the gang's members begin one by one instead of all at once when all are prepared
    #[arg(long, requires = "gang")]
    no_barrier: bool,
    /// How the job is suspended (keep)
    #[arg(long, value_enum, value_name = "MODE")]
    suspend: Option<SuspendFile>,
    /// Maximum number of tasks that run at a time (all)
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
    /// Number of immediate retries in a row on the hosts that the job has (0)
    #[arg(long, value_name = "COUNT")]
    local_retries: Option<u32>,
    /// Fail after this many attempts in a row without a newer checkpoint; 0: never (3 once there is one)
    #[arg(long, value_name = "COUNT")]
    attempts_without_progress: Option<u32>,
    /// Replace a lost member of the gang while the others continue, if the framework supports it
    #[arg(long, requires = "gang")]
    member_swap: bool,
    /// Ask tasks to stop by this signal before SIGTERM: USR1, or a number
    #[arg(long, value_name = "SIGNAL", value_parser = parse::signal)]
    warn_signal: Option<HumanSignal>,
    /// Send that signal to every process of a task, not to its main process alone
    #[arg(long, requires = "warn_signal")]
    warn_all: bool,
    /// Send it this long before the task is killed (by default when it is asked to stop)
    #[arg(long, value_name = "DURATION", value_parser = parse::duration, requires = "warn_signal")]
    warn_lead: Option<Duration>,
}

impl LifecycleFlags {
    /// Each flag, and whether it is given.
    pub(super) fn given(&self) -> [(&'static str, bool); 10] {
        [
            ("--no-barrier", self.no_barrier),
            ("--suspend", self.suspend.is_some()),
            ("--at-once", self.at_once.is_some()),
            ("--after-ok", !self.after_ok.is_empty()),
            ("--after-any", !self.after_any.is_empty()),
            ("--after-failed", !self.after_failed.is_empty()),
            ("--warn-signal", self.warn_signal.is_some()),
            ("--member-swap", self.member_swap),
            ("--local-retries", self.local_retries.is_some()),
            (
                "--attempts-without-progress",
                self.attempts_without_progress.is_some(),
            ),
        ]
    }

    /// The lifecycle section of the job.
    pub(super) fn lifecycle(&self) -> v1::Lifecycle {
        LifecycleFile {
            suspend: self.suspend,
            barrier: self.no_barrier.then_some(false),
            tasks_at_once_max: self.at_once,
            after_ok: self.after_ok.clone(),
            after_any: self.after_any.clone(),
            after_failed: self.after_failed.clone(),
            rules: Vec::new(),
            local_retries_max: self.local_retries,
            attempts_without_progress_max: self.attempts_without_progress,
            checkpoints: None,
            warning: self.warning(),
            member_swap: self.member_swap.then_some(true),
        }
        .into()
    }

    fn warning(&self) -> Option<WarningFile> {
        let lead_ms = |lead: Duration| u64::try_from(lead.as_millis()).unwrap_or(u64::MAX);
        self.warn_signal.map(|signal| WarningFile {
            signal,
            to: if self.warn_all {
                RecipientFile::All
            } else {
                RecipientFile::Main
            },
            lead: self
                .warn_lead
                .map(|lead| HumanDuration { ms: lead_ms(lead) }),
        })
    }
}

/// The flag that sets a field of the specification.
pub(super) fn flag_of(field: &str) -> Option<&'static str> {
    let flags = [
        ("lifecycle.barrier", "--no-barrier"),
        ("lifecycle.suspend", "--suspend"),
        ("lifecycle.tasks_at_once_max", "--at-once"),
        ("lifecycle.after", "--after-ok, --after-any, --after-failed"),
        ("lifecycle.local_retries_max", "--local-retries"),
        (
            "lifecycle.attempts_without_progress_max",
            "--attempts-without-progress",
        ),
        ("lifecycle.member_swap", "--member-swap"),
        ("lifecycle.warning.signal", "--warn-signal"),
        ("lifecycle.warning.lead_ms", "--warn-lead"),
    ];
    let flag = flags.iter().find(|(name, _)| field.starts_with(name));
    flag.map(|(_, flag)| *flag)
}
