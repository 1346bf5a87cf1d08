//! Draws of lifecycle settings of jobs.

use muster_model::command::{Command, ConfigCommand, JobDefaults, ReplicaRecord};
use muster_model::ids::ReplicaId;
use muster_model::spec::{
    CheckpointPolicy, Condition, Dependency, ExitMatch, ExitMeaning, ExitRule, Lifecycle,
    StopWarning, SuspendMode,
};
use muster_model::testing::request_key;

use crate::draw::{Draw, REQUESTS};

impl Draw<'_> {
    pub(super) fn lifecycle(&mut self, gang: bool) -> Lifecycle {
        let mut lifecycle = Lifecycle::default();
        if gang && !self.once_in(4) {
            lifecycle.barrier = Some(self.once_in(2));
        }
        if self.once_in(3) {
            lifecycle.suspend = SuspendMode::Release;
        }
        if !gang && self.once_in(4) {
            lifecycle.tasks_at_once_max = Some(1 + self.small(3));
        }
        if self.once_in(4) {
            lifecycle.after = self.dependencies();
        }
        if self.once_in(4) {
            lifecycle.rules = vec![self.exit_rule(), self.exit_rule()];
        }
        if self.once_in(3) {
            lifecycle.local_retries_max = self.small(3);
        }
        if self.once_in(3) {
            lifecycle.attempts_without_progress_max = Some(self.small(3));
        }
        if self.once_in(2) {
            lifecycle.checkpoints = Some(CheckpointPolicy {
                kept_min: 2 + self.small(3),
                kept_every: self.once_in(2).then_some(10),
                remove: self.once_in(2),
                bad_max: 1 + self.small(3),
                restore_window_ms: 60_000,
            });
        }
        if self.once_in(4) {
            lifecycle.warning = Some(StopWarning {
                signal: 10,
                to_all: self.once_in(2),
                lead_ms: self.once_in(2).then_some(0),
            });
        }
        lifecycle.member_swap = gang && !self.once_in(3);
        lifecycle
    }

    /// Mostly resumes a suspended job, if there is one.
    pub(super) fn suspension(&mut self) -> Command {
        let request = request_key(self.below(REQUESTS));
        let (author, reason) = ("grace".to_owned(), "time slice used up".to_owned());
        let suspended: Vec<_> = self.state.index.suspended.iter().copied().collect();
        match self.pick(suspended) {
            Some(job) if !self.once_in(4) => Command::ResumeJob {
                request,
                job,
                author,
                reason,
            },
            _ => Command::SuspendJob {
                request,
                job: self.job(),
                author,
                reason,
            },
        }
    }

    pub(super) fn job_defaults(&mut self) -> Command {
        Command::Config(ConfigCommand::SetJobDefaults {
            leader: self.leader(),
            defaults: JobDefaults {
                attempts_without_progress_max: self.small(4),
                bad_checkpoints_max: 1 + self.small(3),
                restore_window_ms: 60_000,
            },
        })
    }

    /// A membership that a leader may record; mostly one replica more or less than before.
    pub(super) fn replicas(&mut self) -> Command {
        let first = 1 + self.below(4);
        let count = 1 + self.below(4);
        let replica = |draw: &mut Self, id: u64| ReplicaRecord {
            id: ReplicaId(id),
            address: format!("replica-{id}:7400"),
            votes: !draw.once_in(3),
        };
        Command::RecordReplicas {
            leader: self.leader(),
            replicas: (first..first + count).map(|id| replica(self, id)).collect(),
        }
    }

    /// Mostly existing jobs, in any phase.
    fn dependencies(&mut self) -> Vec<Dependency> {
        let count = 1 + self.below(3);
        let dependency = |draw: &mut Self| Dependency {
            job: draw.job(),
            when: match draw.below(3) {
                0 => Condition::Succeeded,
                1 => Condition::Ended,
                _ => Condition::Failed,
            },
        };
        let mut after: Vec<Dependency> = (0..count).map(|_| dependency(self)).collect();
        after.sort_unstable();
        after.dedup_by_key(|dependency| dependency.job);
        after
    }

    fn exit_rule(&mut self) -> ExitRule {
        ExitRule {
            on: match self.below(3) {
                0 => ExitMatch::Codes { first: 1, last: 80 },
                1 => ExitMatch::Signal(9),
                _ => ExitMatch::OutOfMemory,
            },
            then: match self.below(4) {
                0 => ExitMeaning::Retry,
                1 => ExitMeaning::RetryFree,
                2 => ExitMeaning::Fail,
                _ => ExitMeaning::Succeed,
            },
        }
    }
}
