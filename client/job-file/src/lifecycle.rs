//! The lifecycle section of a job file: dependencies, suspension, retries, exit rules and checkpoints.

use muster_proto::v1;
use serde::{Deserialize, Serialize};

use crate::human::{HumanDuration, HumanSignal};

/// Lifecycle settings of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LifecycleFile {
    /// Whether all members of the gang must be prepared before any of them starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub barrier: Option<bool>,
    /// How the job is suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<SuspendFile>,
    /// Maximum number of the job's tasks that hold resources at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks_at_once_max: Option<u32>,
    /// Jobs that must have succeeded first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after_ok: Vec<u64>,
    /// Jobs that must have ended first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after_any: Vec<u64>,
    /// Jobs that must have failed or been cancelled first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after_failed: Vec<u64>,
    /// Exit rules of its tasks; the first match applies.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleFile>,
    /// Maximum number of consecutive retries that restart in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_retries_max: Option<u32>,
    /// Consecutive attempts without a newer checkpoint after which a unit fails; 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts_without_progress_max: Option<u32>,
    /// Retention of the job's checkpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<CheckpointsFile>,
    /// The warning signal that tasks receive before SIGTERM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<WarningFile>,
    /// Whether one member of the gang may be replaced while the others continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member_swap: Option<bool>,
}

/// Retention of a job's checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointsFile {
    /// Number of newest good checkpoints that are kept.
    kept_min: u32,
    /// Checkpoints whose step is a multiple of this are kept as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_every: Option<u64>,
    /// Whether the directories of all other checkpoints are removed.
    remove: bool,
    /// Consecutive damaged checkpoints after which a unit is not restarted.
    bad_max: u32,
    /// Time after an attempt's start within which a failure to read a checkpoint marks it damaged.
    restore_window: HumanDuration,
}

impl Default for CheckpointsFile {
    /// Two kept, nothing removed, at most three damaged, a window of ten minutes.
    fn default() -> Self {
        Self {
            kept_min: 2,
            kept_every: None,
            remove: false,
            bad_max: 3,
            restore_window: HumanDuration { ms: 600_000 },
        }
    }
}

impl From<CheckpointsFile> for v1::CheckpointPolicy {
    fn from(file: CheckpointsFile) -> Self {
        Self {
            kept_min: file.kept_min,
            kept_every: file.kept_every,
            remove: file.remove,
            bad_max: file.bad_max,
            restore_window_ms: file.restore_window.ms,
        }
    }
}

impl From<v1::CheckpointPolicy> for CheckpointsFile {
    fn from(policy: v1::CheckpointPolicy) -> Self {
        Self {
            kept_min: policy.kept_min,
            kept_every: policy.kept_every,
            remove: policy.remove,
            bad_max: policy.bad_max,
            restore_window: HumanDuration {
                ms: policy.restore_window_ms,
            },
        }
    }
}

/// A signal before SIGTERM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarningFile {
    /// The signal.
    pub signal: HumanSignal,
    /// Processes of the task that receive it.
    #[serde(default)]
    pub to: RecipientFile,
    /// Time between the signal and the kill; if absent, the signal is sent when the stop begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<HumanDuration>,
}

/// Processes of a task that receive a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecipientFile {
    /// The process started from the job's command.
    #[default]
    Main,
    /// All processes.
    All,
}

/// How a job is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum SuspendFile {
    /// Its processes are paused and keep their resources, GPU memory included.
    Keep,
    /// The job saves a checkpoint, stops, releases everything and resumes from its checkpoint.
    Release,
}

impl From<SuspendFile> for v1::SuspendMode {
    fn from(file: SuspendFile) -> Self {
        match file {
            SuspendFile::Keep => Self::Keep,
            SuspendFile::Release => Self::Release,
        }
    }
}

/// An exit rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleFile {
    /// The ends that the rule matches.
    pub on: EndFile,
    /// The meaning of a match.
    pub then: MeaningFile,
}

/// Matched ends of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndFile {
    /// This exit code.
    Code(i32),
    /// An inclusive range of exit codes.
    Codes([i32; 2]),
    /// Death by this signal.
    Signal(i32),
    /// Death by the memory limit.
    OutOfMemory,
}

/// Meaning of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeaningFile {
    /// A failure, retried while retries are left.
    Retry,
    /// Restarted without using up a retry.
    RetryFree,
    /// Fails permanently; not retried.
    Fail,
    /// A success.
    Succeed,
}

impl From<LifecycleFile> for v1::Lifecycle {
    fn from(file: LifecycleFile) -> Self {
        let lists = [
            (file.after_ok, v1::Condition::Succeeded),
            (file.after_any, v1::Condition::Ended),
            (file.after_failed, v1::Condition::Failed),
        ];
        let after = lists.into_iter().flat_map(|(jobs, when)| {
            jobs.into_iter().map(move |job_id| v1::Dependency {
                job_id,
                when: when.into(),
            })
        });
        Self {
            suspend: file
                .suspend
                .map_or(v1::SuspendMode::Unspecified, Into::into)
                .into(),
            barrier: file.barrier,
            tasks_at_once_max: file.tasks_at_once_max,
            after: after.collect(),
            rules: file.rules.into_iter().map(Into::into).collect(),
            local_retries_max: file.local_retries_max.unwrap_or(0),
            attempts_without_progress_max: file.attempts_without_progress_max,
            checkpoints: file.checkpoints.map(Into::into),
            warning: file.warning.map(Into::into),
            member_swap: file.member_swap.unwrap_or(false),
        }
    }
}

impl From<&v1::Lifecycle> for LifecycleFile {
    fn from(lifecycle: &v1::Lifecycle) -> Self {
        let named = |when: v1::Condition| {
            let after = lifecycle.after.iter();
            let named = after.filter(|dependency| dependency.when() == when);
            named.map(|dependency| dependency.job_id).collect()
        };
        Self {
            suspend: match lifecycle.suspend() {
                v1::SuspendMode::Release => Some(SuspendFile::Release),
                v1::SuspendMode::Keep | v1::SuspendMode::Unspecified => None,
            },
            barrier: lifecycle.barrier,
            tasks_at_once_max: lifecycle.tasks_at_once_max,
            after_ok: named(v1::Condition::Succeeded),
            after_any: named(v1::Condition::Ended),
            after_failed: named(v1::Condition::Failed),
            rules: lifecycle.rules.iter().filter_map(rule).collect(),
            local_retries_max: Some(lifecycle.local_retries_max).filter(|max| *max > 0),
            attempts_without_progress_max: lifecycle.attempts_without_progress_max,
            checkpoints: lifecycle.checkpoints.map(Into::into),
            warning: lifecycle.warning.map(Into::into),
            member_swap: lifecycle.member_swap.then_some(true),
        }
    }
}

impl From<WarningFile> for v1::StopWarning {
    fn from(file: WarningFile) -> Self {
        Self {
            signal: file.signal.number,
            to_all: file.to == RecipientFile::All,
            lead_ms: file.lead.map(|lead| lead.ms),
        }
    }
}

impl From<v1::StopWarning> for WarningFile {
    fn from(warning: v1::StopWarning) -> Self {
        Self {
            signal: HumanSignal {
                number: warning.signal,
            },
            to: if warning.to_all {
                RecipientFile::All
            } else {
                RecipientFile::Main
            },
            lead: warning.lead_ms.map(|ms| HumanDuration { ms }),
        }
    }
}

impl From<RuleFile> for v1::ExitRule {
    fn from(rule: RuleFile) -> Self {
        use v1::exit_rule::{Codes, On, Plain};
        let on = match rule.on {
            EndFile::Code(code) => On::Codes(Codes {
                first: code,
                last: code,
            }),
            EndFile::Codes([first, last]) => On::Codes(Codes { first, last }),
            EndFile::Signal(signal) => On::Signal(signal),
            EndFile::OutOfMemory => On::OutOfMemory(Plain {}),
        };
        let then = match rule.then {
            MeaningFile::Retry => v1::ExitMeaning::Retry,
            MeaningFile::RetryFree => v1::ExitMeaning::RetryFree,
            MeaningFile::Fail => v1::ExitMeaning::Fail,
            MeaningFile::Succeed => v1::ExitMeaning::Succeed,
        };
        Self {
            on: Some(on),
            then: then.into(),
        }
    }
}

/// Exit rule of a job specification; `None` for a form introduced by a newer build.
fn rule(wire: &v1::ExitRule) -> Option<RuleFile> {
    use v1::exit_rule::On;
    let on = match wire.on? {
        On::Codes(codes) if codes.first == codes.last => EndFile::Code(codes.first),
        On::Codes(codes) => EndFile::Codes([codes.first, codes.last]),
        On::Signal(signal) => EndFile::Signal(signal),
        On::OutOfMemory(_) => EndFile::OutOfMemory,
    };
    let then = match wire.then() {
        v1::ExitMeaning::Unspecified => return None,
        v1::ExitMeaning::Retry => MeaningFile::Retry,
        v1::ExitMeaning::RetryFree => MeaningFile::RetryFree,
        v1::ExitMeaning::Fail => MeaningFile::Fail,
        v1::ExitMeaning::Succeed => MeaningFile::Succeed,
    };
    Some(RuleFile { on, then })
}
