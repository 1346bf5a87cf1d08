//! What a job says about its own life, as it is written in a job file.

use muster_proto::v1;
use serde::{Deserialize, Serialize};

use crate::human::{HumanDuration, HumanSignal};

/// What a job says about its own life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LifecycleFile {
    /// Whether no member of the gang begins before all of them are prepared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub barrier: Option<bool>,
    /// How the job is suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<SuspendFile>,
    /// At most so many tasks hold resources at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tasks_at_once_max: Option<u32>,
    /// Jobs that must have succeeded before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after_ok: Vec<u64>,
    /// Jobs that must have ended before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after_any: Vec<u64>,
    /// Jobs that must have failed, or been cancelled, before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after_failed: Vec<u64>,
    /// What the ends of its tasks mean; the first one that matches counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<RuleFile>,
    /// Of the retries in a row, so many are begun at once where the unit is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_retries_max: Option<u32>,
    /// Attempts in a row without a newer checkpoint after which a unit fails; 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts_without_progress_max: Option<u32>,
    /// What becomes of its checkpoints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<CheckpointsFile>,
    /// The signal by which its tasks are asked to stop, before SIGTERM.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<WarningFile>,
    /// Whether one member of the gang may be replaced while the others go on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub member_swap: Option<bool>,
}

/// What becomes of a job's checkpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointsFile {
    /// So many of the newest good ones are kept.
    kept_min: u32,
    /// Those whose step is a multiple of this are kept as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    kept_every: Option<u64>,
    /// Whether the others' folders are removed.
    remove: bool,
    /// Spoiled ones in a row after which a unit is not begun again.
    bad_max: u32,
    /// Time after its start within which an attempt's failure to read one marks it spoiled.
    restore_window: HumanDuration,
}

impl Default for CheckpointsFile {
    /// Two are kept, nothing is removed, three bad ones, ten minutes.
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
    /// Which.
    pub signal: HumanSignal,
    /// To which processes of the task.
    #[serde(default)]
    pub to: RecipientFile,
    /// How long before the task is killed; at once when it is asked to stop if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lead: Option<HumanDuration>,
}

/// Which processes of a task get a signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecipientFile {
    /// The one that the job's command became.
    #[default]
    Main,
    /// Every one.
    All,
}

/// How a job is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
#[serde(rename_all = "snake_case")]
pub enum SuspendFile {
    /// Its processes stand still and keep what they have, memory on GPUs included
    Keep,
    /// It saves, stops, gives everything back and goes on from its checkpoint
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

/// What an end of a task means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleFile {
    /// Which ends.
    pub on: EndFile,
    /// What they mean.
    pub then: MeaningFile,
}

/// Ends of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndFile {
    /// With this code.
    Code(i32),
    /// With a code from the first to the last.
    Codes([i32; 2]),
    /// By this signal.
    Signal(i32),
    /// By the memory limit.
    OutOfMemory,
}

/// What an end means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MeaningFile {
    /// A failure, run again while retries are left.
    Retry,
    /// Run again without using a retry up.
    RetryFree,
    /// Failed for good.
    Fail,
    /// Ended well.
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

/// A rule of a specification; none if a newer build means something by it that this one does not know.
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
