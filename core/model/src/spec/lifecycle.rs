//! Lifecycle settings of a job: dependencies, concurrency, retries, exit rules and checkpoints.

use serde::{Deserialize, Serialize};

use crate::command::{EXIT_DO_NOT_RESTART, EXIT_RUN_AGAIN, Exit};
use crate::ids::JobId;
use crate::lifecycle::JobPhase;

/// Lifecycle settings of a job. The default sets nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifecycle {
    /// Whether all members of its gang must be prepared before any of them starts. If `None`: where the
    /// hosts' workers support it, which the job does not control.
    pub barrier: Option<bool>,
    /// Maximum number of its units that hold resources at a time; for jobs whose tasks are placed
    /// individually. No limit if `None`.
    pub tasks_at_once_max: Option<u32>,
    /// Dependencies that must be fulfilled before any part of this job is placed; at most `DEPENDENCIES_MAX`.
    pub after: Vec<Dependency>,
    /// Exit rules of its tasks; the first match applies. At most `EXIT_RULES_MAX`.
    pub rules: Vec<ExitRule>,
    /// Number of consecutive retries that restart immediately on the unit's hosts and GPUs, before it is
    /// placed again; at most `LOCAL_RETRIES_MAX`.
    pub local_retries_max: u32,
    /// Consecutive failed attempts without a newer checkpoint after which a unit fails; at most
    /// `ATTEMPTS_WITHOUT_PROGRESS_MAX`. 0: no limit. If `None`, the cluster's default for units that have
    /// committed a checkpoint.
    pub attempts_without_progress_max: Option<u32>,
    /// Retention of its checkpoints. All are left untouched if `None`.
    pub checkpoints: Option<CheckpointPolicy>,
    /// Mode of its suspension.
    pub suspend: SuspendMode,
    /// Warning signal sent to its tasks before SIGTERM. SIGTERM only if `None`.
    pub warning: Option<StopWarning>,
    /// Whether its framework supports the replacement of one member while the others continue; gangs only.
    /// Otherwise the whole gang is restarted.
    pub member_swap: bool,
}

/// A signal chosen by the job that its tasks receive before SIGTERM when they are asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopWarning {
    /// Signal number.
    pub signal: i32,
    /// True: to every process of the task. False: to its main process only.
    pub to_all: bool,
    /// Milliseconds before the kill at which it is sent; if `None`, when the stop begins.
    pub lead_ms: Option<u64>,
}

/// Another job that must have ended first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Dependency {
    /// The job.
    pub job: JobId,
    /// Required outcome.
    pub when: Condition,
}

/// Required outcome of another job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Condition {
    /// Success (`after_ok`).
    Succeeded,
    /// Any (`after_any`).
    Ended,
    /// Failure or cancellation (`after_failed`).
    Failed,
}

impl Condition {
    /// Whether a job in this phase fulfils the condition; `None` while undecided.
    #[must_use]
    pub const fn holds(self, phase: JobPhase) -> Option<bool> {
        if !phase.is_terminal() {
            return None;
        }
        let succeeded = matches!(phase, JobPhase::Succeeded);
        Some(match self {
            Self::Succeeded => succeeded,
            Self::Ended => true,
            Self::Failed => !succeeded,
        })
    }

    /// The word used in job files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "after_ok",
            Self::Ended => "after_any",
            Self::Failed => "after_failed",
        }
    }
}

/// An exit rule: the meaning of certain ends of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExitRule {
    /// The ends that the rule matches.
    pub on: ExitMatch,
    /// The meaning of a match.
    pub then: ExitMeaning,
}

/// Matched ends of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ExitMatch {
    /// An exit with one of these codes. Never 0, `EXIT_RUN_AGAIN` or `EXIT_DO_NOT_RESTART`, which have fixed
    /// meanings.
    Codes {
        /// Lowest code, at least 1.
        first: i32,
        /// Highest code, at most 255.
        last: i32,
    },
    /// Death by this signal.
    Signal(i32),
    /// Death by its memory limit.
    OutOfMemory,
}

/// Meaning of a task's end for its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ExitMeaning {
    /// A failure of the job itself, retried while retries are left: the meaning of every failure without a
    /// rule.
    Retry,
    /// Restarted without using up a retry.
    RetryFree,
    /// Fails permanently; not retried.
    Fail,
    /// A success.
    Succeed,
}

impl ExitMatch {
    /// Whether a task ended in this way on its own.
    #[must_use]
    pub fn matches(self, exit: &Exit) -> bool {
        if exit.lease_expired || exit.start_error.is_some() {
            return false;
        }
        match self {
            Self::Codes { first, last } => exit.code.is_some_and(|code| {
                (first..=last).contains(&code)
                    && !matches!(code, 0 | EXIT_RUN_AGAIN | EXIT_DO_NOT_RESTART)
            }),
            Self::Signal(signal) => exit.signal == Some(signal),
            Self::OutOfMemory => exit.out_of_memory,
        }
    }
}

impl Lifecycle {
    /// The meaning that the job's rules assign to an exit of one of its tasks, if any.
    #[must_use]
    pub fn meaning(&self, exit: &Exit) -> Option<ExitMeaning> {
        let rule = self.rules.iter().find(|rule| rule.on.matches(exit))?;
        Some(rule.then)
    }
}

/// Retention policy for a job's checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointPolicy {
    /// Number of newest checkpoints, damaged ones not counted, that are kept; at least
    /// `CHECKPOINTS_KEPT_MIN`, at most `CHECKPOINTS_PER_JOB_MAX`.
    pub kept_min: u32,
    /// Checkpoints whose step is a multiple of this are kept as well. Only the newest if `None`.
    pub kept_every: Option<u64>,
    /// True: the directories of the others are removed. False: only their records are dropped.
    pub remove: bool,
    /// Consecutive damaged checkpoints after which a unit is not restarted; at least 1, at most
    /// `BAD_CHECKPOINTS_MAX`.
    pub bad_max: u32,
    /// Milliseconds after an attempt's start within which a failure to read its checkpoint marks that one
    /// damaged; at most `PERIOD_MS_MAX`.
    pub restore_window_ms: u64,
}

/// Mode of a suspension.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum SuspendMode {
    /// Its processes are paused and keep their resources, GPU memory included.
    #[default]
    Keep,
    /// Its attempts save a checkpoint and stop; they release everything and resume from their checkpoints
    /// later.
    Release,
}

impl SuspendMode {
    /// The word used in job files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Release => "release",
        }
    }
}
