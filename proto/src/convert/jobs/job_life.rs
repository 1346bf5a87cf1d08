//! Lifecycle of a job: dependencies, concurrency and exit rules.

use muster_model::ids::JobId;
use muster_model::spec::{
    CheckpointPolicy, Condition, Dependency, ExitMatch, ExitMeaning, ExitRule, Lifecycle,
    StopWarning, SuspendMode,
};

use crate::field::{InvalidField, required};
use crate::v1;

impl TryFrom<v1::Lifecycle> for Lifecycle {
    type Error = InvalidField;

    fn try_from(wire: v1::Lifecycle) -> Result<Self, InvalidField> {
        let suspend = match wire.suspend() {
            v1::SuspendMode::Unspecified | v1::SuspendMode::Keep => SuspendMode::Keep,
            v1::SuspendMode::Release => SuspendMode::Release,
        };
        let after = wire.after.into_iter().enumerate();
        let rules = wire.rules.into_iter().enumerate();
        Ok(Self {
            suspend,
            barrier: wire.barrier,
            tasks_at_once_max: wire.tasks_at_once_max,
            after: after
                .map(|(position, dependency)| {
                    Dependency::try_from(dependency)
                        .map_err(|invalid| invalid.within_item("after", position))
                })
                .collect::<Result<_, _>>()?,
            rules: rules
                .map(|(position, rule)| {
                    ExitRule::try_from(rule)
                        .map_err(|invalid| invalid.within_item("rules", position))
                })
                .collect::<Result<_, _>>()?,
            local_retries_max: wire.local_retries_max,
            attempts_without_progress_max: wire.attempts_without_progress_max,
            checkpoints: wire.checkpoints.map(Into::into),
            warning: wire.warning.map(Into::into),
            member_swap: wire.member_swap,
        })
    }
}

impl From<&Lifecycle> for v1::Lifecycle {
    fn from(lifecycle: &Lifecycle) -> Self {
        Self {
            suspend: match lifecycle.suspend {
                SuspendMode::Keep => v1::SuspendMode::Unspecified,
                SuspendMode::Release => v1::SuspendMode::Release,
            }
            .into(),
            barrier: lifecycle.barrier,
            tasks_at_once_max: lifecycle.tasks_at_once_max,
            after: lifecycle.after.iter().map(|it| (*it).into()).collect(),
            rules: lifecycle.rules.iter().map(|it| (*it).into()).collect(),
            local_retries_max: lifecycle.local_retries_max,
            attempts_without_progress_max: lifecycle.attempts_without_progress_max,
            checkpoints: lifecycle.checkpoints.map(Into::into),
            warning: lifecycle.warning.map(Into::into),
            member_swap: lifecycle.member_swap,
        }
    }
}

impl TryFrom<v1::Dependency> for Dependency {
    type Error = InvalidField;

    fn try_from(wire: v1::Dependency) -> Result<Self, InvalidField> {
        Ok(Self {
            job: JobId(wire.job_id),
            when: condition_from_wire(wire.when)?,
        })
    }
}

impl From<Dependency> for v1::Dependency {
    fn from(dependency: Dependency) -> Self {
        Self {
            job_id: dependency.job.get(),
            when: condition_to_wire(dependency.when).into(),
        }
    }
}

/// Required result of a dependency.
///
/// # Errors
/// [`InvalidField`] if it is unspecified or unknown to this version.
pub fn condition_from_wire(when: i32) -> Result<Condition, InvalidField> {
    Ok(match v1::Condition::try_from(when) {
        Ok(v1::Condition::Succeeded) => Condition::Succeeded,
        Ok(v1::Condition::Ended) => Condition::Ended,
        Ok(v1::Condition::Failed) => Condition::Failed,
        Ok(v1::Condition::Unspecified) | Err(_) => return Err(unknown("when", when)),
    })
}

/// Required result of a dependency.
#[must_use]
pub const fn condition_to_wire(when: Condition) -> v1::Condition {
    match when {
        Condition::Succeeded => v1::Condition::Succeeded,
        Condition::Ended => v1::Condition::Ended,
        Condition::Failed => v1::Condition::Failed,
    }
}

impl TryFrom<v1::ExitRule> for ExitRule {
    type Error = InvalidField;

    fn try_from(wire: v1::ExitRule) -> Result<Self, InvalidField> {
        use v1::exit_rule::On;
        let then = match wire.then() {
            v1::ExitMeaning::Unspecified => return Err(unknown("then", wire.then)),
            v1::ExitMeaning::Retry => ExitMeaning::Retry,
            v1::ExitMeaning::RetryFree => ExitMeaning::RetryFree,
            v1::ExitMeaning::Fail => ExitMeaning::Fail,
            v1::ExitMeaning::Succeed => ExitMeaning::Succeed,
        };
        let on = match required("on", wire.on)? {
            On::Codes(codes) => ExitMatch::Codes {
                first: codes.first,
                last: codes.last,
            },
            On::Signal(signal) => ExitMatch::Signal(signal),
            On::OutOfMemory(_) => ExitMatch::OutOfMemory,
        };
        Ok(Self { on, then })
    }
}

impl From<ExitRule> for v1::ExitRule {
    fn from(rule: ExitRule) -> Self {
        use v1::exit_rule::{Codes, On, Plain};
        let on = match rule.on {
            ExitMatch::Codes { first, last } => On::Codes(Codes { first, last }),
            ExitMatch::Signal(signal) => On::Signal(signal),
            ExitMatch::OutOfMemory => On::OutOfMemory(Plain {}),
        };
        let then = match rule.then {
            ExitMeaning::Retry => v1::ExitMeaning::Retry,
            ExitMeaning::RetryFree => v1::ExitMeaning::RetryFree,
            ExitMeaning::Fail => v1::ExitMeaning::Fail,
            ExitMeaning::Succeed => v1::ExitMeaning::Succeed,
        };
        Self {
            on: Some(on),
            then: then.into(),
        }
    }
}

impl From<v1::CheckpointPolicy> for CheckpointPolicy {
    fn from(wire: v1::CheckpointPolicy) -> Self {
        Self {
            kept_min: wire.kept_min,
            kept_every: wire.kept_every,
            remove: wire.remove,
            bad_max: wire.bad_max,
            restore_window_ms: wire.restore_window_ms,
        }
    }
}

impl From<CheckpointPolicy> for v1::CheckpointPolicy {
    fn from(policy: CheckpointPolicy) -> Self {
        Self {
            kept_min: policy.kept_min,
            kept_every: policy.kept_every,
            remove: policy.remove,
            bad_max: policy.bad_max,
            restore_window_ms: policy.restore_window_ms,
        }
    }
}

impl From<v1::StopWarning> for StopWarning {
    fn from(wire: v1::StopWarning) -> Self {
        Self {
            signal: wire.signal,
            to_all: wire.to_all,
            lead_ms: wire.lead_ms,
        }
    }
}

impl From<StopWarning> for v1::StopWarning {
    fn from(warning: StopWarning) -> Self {
        Self {
            signal: warning.signal,
            to_all: warning.to_all,
            lead_ms: warning.lead_ms,
        }
    }
}

fn unknown(field: &str, number: i32) -> InvalidField {
    let rule = format!("{number} is not a value that this version knows");
    InvalidField::new(field, rule)
}
