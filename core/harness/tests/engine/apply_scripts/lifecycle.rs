//! Script commands for lifecycles: dependencies, exit rules, damaged checkpoints.

use muster_model::command::{
    CheckpointCommand, Command, ConfigCommand, JobDefaults, ReplicaRecord,
};
use muster_model::ids::{AttemptEpoch, LeadershipEpoch, ReplicaId, TaskIndex};
use muster_model::spec::{
    CheckpointPolicy, Condition, Dependency, ExitMatch, ExitMeaning, ExitRule, JobSpec, SuspendMode,
};

use crate::apply_scripts::runner::{Args, Result, Runner};

impl Runner {
    /// Lifecycle settings of a job: `at_once=MAX`, `after_ok=JOB,...`, `after_any=`, `after_failed=`,
    /// `rules=3-5:fail,signal9:retry,oom:succeed,7:free`, `local_retries=`, `without_progress=`,
    /// `suspend=release`, `swap=true`.
    pub(crate) fn live(&self, args: &mut Args<'_>, spec: &mut JobSpec) -> Result<()> {
        let lifecycle = &mut spec.lifecycle;
        lifecycle.tasks_at_once_max = args.key("at_once")?;
        if args.key_or("suspend", "keep".to_owned())? == "release" {
            lifecycle.suspend = SuspendMode::Release;
        }
        lifecycle.member_swap = args.key_or("swap", false)?;
        lifecycle.local_retries_max = args.key_or("local_retries", 0)?;
        lifecycle.attempts_without_progress_max = args.key("without_progress")?;
        lifecycle.checkpoints = policy(args)?;
        for when in [Condition::Succeeded, Condition::Ended, Condition::Failed] {
            let named: Option<String> = args.key(when.name())?;
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

    /// `defaults [without_progress=MAX] [bad=MAX]`.
    pub(crate) fn defaults(args: &mut Args<'_>, leader: LeadershipEpoch) -> Result<Command> {
        let known = JobDefaults::default();
        let max = known.attempts_without_progress_max;
        Ok(Command::Config(ConfigCommand::SetJobDefaults {
            leader,
            defaults: JobDefaults {
                attempts_without_progress_max: args.key_or("without_progress", max)?,
                bad_checkpoints_max: args.key_or("bad", known.bad_checkpoints_max)?,
                ..known
            },
        }))
    }

    /// `replicas ID[,ID...] [learners=ID[,ID...]]`: the current replicas.
    pub(crate) fn replicas(args: &mut Args<'_>, leader: LeadershipEpoch) -> Result<Command> {
        let voters: String = args.positional()?;
        let learners: String = args.key_or("learners", String::new())?;
        let records = |list: &str, votes: bool| -> Result<Vec<ReplicaRecord>> {
            let ids = list.split(',').filter(|id| !id.is_empty());
            ids.map(|id| {
                Ok(ReplicaRecord {
                    id: ReplicaId(id.parse()?),
                    address: format!("replica-{id}:7400"),
                    votes,
                })
            })
            .collect()
        };
        let mut replicas = records(&voters, true)?;
        replicas.extend(records(&learners, false)?);
        Ok(Command::RecordReplicas { leader, replicas })
    }

    /// Shows the GPU time of a job by use.
    pub(crate) fn ledger(&self, args: &mut Args<'_>) -> Result<String> {
        let id = self.job(args)?;
        let job = self.cluster.state.job(id).ok_or("no such job")?;
        let ledger = &job.ledger;
        let permille = ledger.kept_permille();
        let mut text = format!(
            "kept {} GPU ms, {permille:?} permille\n",
            ledger.kept_gpu_ms
        );
        if ledger.paused_gpu_ms > 0 {
            text += &format!("paused: {}\n", ledger.paused_gpu_ms);
        }
        for (_, cause, loss) in ledger.causes() {
            if loss.total_gpu_ms() > 0 {
                let (queue, restart, work) =
                    (loss.queue_gpu_ms, loss.restart_gpu_ms, loss.work_gpu_ms);
                text += &format!("{cause}: queue {queue}, restart {restart}, work {work}\n");
            }
        }
        Ok(text)
    }

    /// `damage JOB STEP EPOCH [epoch=REPORTER]`.
    pub(crate) fn damage(
        &mut self,
        args: &mut Args<'_>,
        leader: LeadershipEpoch,
    ) -> Result<Command> {
        let job = self.job(args)?;
        let (step, epoch) = (args.positional()?, AttemptEpoch(args.positional()?));
        let (unit, reporter) = self.attempt(args, job, TaskIndex(0))?;
        Ok(Command::Checkpoint(
            CheckpointCommand::MarkCheckpointDamaged {
                leader,
                job,
                unit,
                reporter,
                epoch,
                step,
                reason: "its digest differs".to_owned(),
            },
        ))
    }
}

/// `kept=MIN [every=STEPS] [remove=true] [bad=MAX]`.
fn policy(args: &mut Args<'_>) -> Result<Option<CheckpointPolicy>> {
    let Some(kept_min) = args.key("kept")? else {
        return Ok(None);
    };
    Ok(Some(CheckpointPolicy {
        kept_min,
        kept_every: args.key("every")?,
        remove: args.key_or("remove", false)?,
        bad_max: args.key_or("bad", 3)?,
        restore_window_ms: 600_000,
    }))
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
