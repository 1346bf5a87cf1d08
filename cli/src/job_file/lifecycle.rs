//! What a job says about its own life, as it is written in a job file.

use muster_proto::v1;
use serde::{Deserialize, Serialize};

/// What a job says about its own life.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct LifecycleFile {
    /// Whether no member of the gang begins before all of them are prepared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) barrier: Option<bool>,
    /// How the job is suspended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) suspend: Option<SuspendFile>,
    /// At most so many tasks hold resources at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tasks_at_once_max: Option<u32>,
    /// Jobs that must have succeeded before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) after_ok: Vec<u64>,
    /// Jobs that must have ended before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) after_any: Vec<u64>,
    /// Jobs that must have failed, or been cancelled, before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) after_failed: Vec<u64>,
    /// What the ends of its tasks mean; the first one that matches counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) rules: Vec<RuleFile>,
}

/// How a job is suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SuspendFile {
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
pub(crate) struct RuleFile {
    /// Which ends.
    pub(crate) on: EndFile,
    /// What they mean.
    pub(crate) then: MeaningFile,
}

/// Ends of tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum EndFile {
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
pub(crate) enum MeaningFile {
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
            ..Self::default()
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
