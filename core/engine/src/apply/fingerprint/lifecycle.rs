//! Fingerprints of lifecycle settings. Each field is preceded by its number in the format, so that fields
//! added later fold differently from all existing ones.

use muster_model::spec::{
    CheckpointPolicy, Condition, Dependency, ExitMatch, ExitMeaning, ExitRule, Lifecycle,
    SuspendMode,
};

use crate::apply::fingerprint::Fold;

/// Separates the following fields from a scheduling part, which may be absent before it.
const MARK: u64 = 0x6c69_6665;

impl Fold {
    pub(super) fn lifecycle(&mut self, lifecycle: &Lifecycle) {
        let Lifecycle {
            barrier,
            tasks_at_once_max,
            after,
            rules,
            local_retries_max,
            attempts_without_progress_max,
            checkpoints,
            suspend,
            warning,
            member_swap,
        } = lifecycle;
        self.number(MARK);
        if let Some(barrier) = barrier {
            self.numbers(&[1, u64::from(*barrier)]);
        }
        if let Some(max) = tasks_at_once_max {
            self.numbers(&[2, u64::from(*max)]);
        }
        if !after.is_empty() {
            self.numbers(&[3, after.len() as u64]);
            after
                .iter()
                .for_each(|dependency| self.dependency(*dependency));
        }
        if !rules.is_empty() {
            self.numbers(&[4, rules.len() as u64]);
            rules.iter().for_each(|rule| self.exit_rule(*rule));
        }
        if *local_retries_max > 0 {
            self.numbers(&[5, u64::from(*local_retries_max)]);
        }
        if let Some(max) = attempts_without_progress_max {
            self.numbers(&[6, u64::from(*max)]);
        }
        if let Some(policy) = checkpoints {
            self.number(7);
            self.policy(policy);
        }
        match suspend {
            SuspendMode::Keep => {}
            SuspendMode::Release => self.numbers(&[8, 2]),
        }
        if let Some(warning) = warning {
            let signal = u64::from(warning.signal.cast_unsigned());
            self.numbers(&[9, signal, u64::from(warning.to_all)]);
            self.option(warning.lead_ms);
        }
        if *member_swap {
            self.numbers(&[10, 1]);
        }
    }

    fn dependency(&mut self, dependency: Dependency) {
        self.number(dependency.job.get());
        self.condition(dependency.when);
    }

    pub(super) fn condition(&mut self, when: Condition) {
        self.number(match when {
            Condition::Succeeded => 1,
            Condition::Ended => 2,
            Condition::Failed => 3,
        });
    }

    fn exit_rule(&mut self, rule: ExitRule) {
        let number = |value: i32| u64::from(value.cast_unsigned());
        match rule.on {
            ExitMatch::Codes { first, last } => self.numbers(&[1, number(first), number(last)]),
            ExitMatch::Signal(signal) => self.numbers(&[2, number(signal)]),
            ExitMatch::OutOfMemory => self.number(3),
        }
        self.number(match rule.then {
            ExitMeaning::Retry => 1,
            ExitMeaning::RetryFree => 2,
            ExitMeaning::Fail => 3,
            ExitMeaning::Succeed => 4,
        });
    }

    fn policy(&mut self, policy: &CheckpointPolicy) {
        self.number(u64::from(policy.kept_min));
        self.option(policy.kept_every);
        self.numbers(&[
            u64::from(policy.remove),
            u64::from(policy.bad_max),
            policy.restore_window_ms,
        ]);
    }

    fn numbers(&mut self, values: &[u64]) {
        values.iter().for_each(|value| self.number(*value));
    }
}
