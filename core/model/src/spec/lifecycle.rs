//! What a job says about its own life: what it waits for, how much of it runs at a time, and what its ends mean.

use serde::{Deserialize, Serialize};

use crate::command::{EXIT_DO_NOT_RESTART, EXIT_RUN_AGAIN, Exit};
use crate::ids::JobId;
use crate::lifecycle::JobPhase;

/// What a job says about its own life. The default says nothing: such a job lives as jobs did before there were
/// lifecycles, which the log of older builds relies on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lifecycle {
    /// Whether no member of its gang begins before all of them are prepared. If none: where the cluster and the hosts'
    /// workers can, which is no part of what the job asks for.
    pub barrier: Option<bool>,
    /// At most so many of its units hold resources at a time; for jobs whose tasks are placed one by one. No limit if
    /// none.
    pub tasks_at_once_max: Option<u32>,
    /// Jobs that must have ended as it says before anything of this one is placed; at most `DEPENDENCIES_MAX`.
    pub after: Vec<Dependency>,
    /// What the ends of its tasks mean; the first one that matches counts. At most `EXIT_RULES_MAX`.
    pub rules: Vec<ExitRule>,
    /// Of the retries that follow each other, so many are begun at once on the hosts and GPUs that the unit has, before
    /// it is placed anew; at most `LOCAL_RETRIES_MAX`.
    pub local_retries_max: u32,
    /// Attempts in a row that failed without a newer checkpoint after which a unit fails; at most
    /// `ATTEMPTS_WITHOUT_PROGRESS_MAX`. 0: no limit. The cluster's default if none, for units that have committed a
    /// checkpoint.
    pub attempts_without_progress_max: Option<u32>,
    /// What becomes of its checkpoints. They are all left alone if none.
    pub checkpoints: Option<CheckpointPolicy>,
    /// How it is suspended.
    pub suspend: SuspendMode,
    /// The signal by which its tasks are asked to stop. SIGTERM alone if none.
    pub warning: Option<StopWarning>,
    /// Whether its framework takes it that one member is replaced while the others go on; for gangs alone. Otherwise the
    /// gang is restarted whole.
    pub member_swap: bool,
}

/// A signal of a job's choice that its tasks get before SIGTERM when they are asked to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopWarning {
    /// The signal's number.
    pub signal: i32,
    /// True: to every process of the task. False: to its main process alone.
    pub to_all: bool,
    /// Milliseconds before the task is killed; at once when it is asked to stop if none.
    pub lead_ms: Option<u64>,
}

/// Another job that must have ended before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Dependency {
    /// Which job.
    pub job: JobId,
    /// How it must have ended.
    pub when: Condition,
}

/// How another job must have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Condition {
    /// Well (`after_ok`).
    Succeeded,
    /// In any way (`after_any`).
    Ended,
    /// Badly: it failed or was cancelled (`after_failed`).
    Failed,
}

impl Condition {
    /// Whether a job of this phase fulfils it; none while that is open.
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

    /// The word that users write.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Succeeded => "after_ok",
            Self::Ended => "after_any",
            Self::Failed => "after_failed",
        }
    }
}

/// What an end of a task means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ExitRule {
    /// Which ends.
    pub on: ExitMatch,
    /// What they mean.
    pub then: ExitMeaning,
}

/// Ends of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ExitMatch {
    /// By itself, with one of these codes. Never with 0, `EXIT_RUN_AGAIN` or `EXIT_DO_NOT_RESTART`, which have their
    /// own meaning.
    Codes {
        /// The lowest, at least 1.
        first: i32,
        /// The highest, at most 255.
        last: i32,
    },
    /// By this signal.
    Signal(i32),
    /// By its memory limit.
    OutOfMemory,
}

/// What an end of a task means for its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ExitMeaning {
    /// A failure of the job's own, run again while retries are left: what every bad end means without a rule.
    Retry,
    /// Run again without using a retry up.
    RetryFree,
    /// Failed for good.
    Fail,
    /// Ended well.
    Succeed,
}

impl ExitMatch {
    /// Whether a task ended so, by its own doing.
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
    /// What the job says about an end of one of its tasks, if it says something.
    #[must_use]
    pub fn meaning(&self, exit: &Exit) -> Option<ExitMeaning> {
        let rule = self.rules.iter().find(|rule| rule.on.matches(exit))?;
        Some(rule.then)
    }
}

/// What becomes of a job's checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointPolicy {
    /// So many of the newest ones that are not spoiled are kept; at least `CHECKPOINTS_KEPT_MIN`, at most
    /// `CHECKPOINTS_PER_JOB_MAX`.
    pub kept_min: u32,
    /// Those whose step is a multiple of this are kept as well. None beside the newest if none.
    pub kept_every: Option<u64>,
    /// True: the others' folders are removed. False: they are only forgotten.
    pub remove: bool,
    /// Spoiled checkpoints in a row after which a unit is not begun again; at least 1, at most `BAD_CHECKPOINTS_MAX`.
    pub bad_max: u32,
    /// Milliseconds after its start within which an attempt's failure to read its checkpoint marks that one spoiled; at
    /// most `PERIOD_MS_MAX`.
    pub restore_window_ms: u64,
}

/// How a job is suspended.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum SuspendMode {
    /// Its processes stand still where they are and keep what they have, memory on GPUs included.
    #[default]
    Keep,
    /// Its attempts are asked to save and to stop; they give everything back and go on from their checkpoints later.
    Release,
}

impl SuspendMode {
    /// The word that users write.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Keep => "keep",
            Self::Release => "release",
        }
    }
}
