//! The part of the language that concerns jobs' own lives: dependencies, rules for exits, damaged checkpoints.

use muster_core::command::Command;
use muster_core::ids::{AttemptEpoch, LeadershipEpoch, TaskIndex};
use muster_core::spec::{
    Condition, Dependency, ExitMatch, ExitMeaning, ExitRule, JobSpec, SuspendMode,
};

use crate::runner::{Args, Result, Runner};

impl Runner {
    /// What a job says about its own life: `at_once=MAX`, `after_ok=JOB,...`, `after_any=`, `after_failed=`,
    /// `suspend=release`, `rules=3-5:fail,signal9:retry,oom:succeed,7:free`, and what this build has not: `local_retries=`.
    pub(crate) fn live(&self, args: &mut Args<'_>, spec: &mut JobSpec) -> Result<()> {
        let lifecycle = &mut spec.lifecycle;
        lifecycle.tasks_at_once_max = args.key("at_once")?;
        if args.key_or("suspend", "keep".to_owned())? == "release" {
            lifecycle.suspend = SuspendMode::Release;
        }
        lifecycle.local_retries_max = args.key_or("local_retries", 0)?;
        for when in [Condition::Succeeded, Condition::Ended, Condition::Failed] {
            let named: Option<String> = args.key(when.word())?;
            for name in named.iter().flat_map(|named| named.split(',')) {
                let job = self.known(name)?;
                lifecycle.after.push(Dependency { job, when });
            }
        }
        let rules: Option<String> = args.key("rules")?;
        for rule in rules.iter().flat_map(|rules| rules.split(',')) {
            lifecycle.rules.push(exit_rule(rule)?);
        }
        Ok(())
    }

    /// `spoil JOB STEP EPOCH [epoch=REPORTER]`.
    pub(crate) fn spoil(
        &mut self,
        args: &mut Args<'_>,
        leader: LeadershipEpoch,
    ) -> Result<Command> {
        let job = self.job(args)?;
        let (step, epoch) = (args.positional()?, AttemptEpoch(args.positional()?));
        let (unit, reporter) = self.attempt(args, job, TaskIndex(0))?;
        Ok(Command::SpoilCheckpoint {
            leader,
            job,
            unit,
            reporter,
            epoch,
            step,
            reason: "its digest differs".to_owned(),
        })
    }
}

fn exit_rule(text: &str) -> Result<ExitRule> {
    let (on, then) = text.split_once(':').ok_or("a rule is END:MEANING")?;
    let on = if on == "oom" {
        ExitMatch::OutOfMemory
    } else if let Some(signal) = on.strip_prefix("signal") {
        ExitMatch::Signal(signal.parse()?)
    } else {
        let (first, last) = on.split_once('-').unwrap_or((on, on));
        ExitMatch::Codes {
            first: first.parse()?,
            last: last.parse()?,
        }
    };
    let then = match then {
        "retry" => ExitMeaning::Retry,
        "free" => ExitMeaning::RetryFree,
        "fail" => ExitMeaning::Fail,
        "succeed" => ExitMeaning::Succeed,
        other => return Err(format!("no meaning `{other}`").into()),
    };
    Ok(ExitRule { on, then })
}
