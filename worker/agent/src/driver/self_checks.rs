//! Checks of the agent's own work for signs of host faults: tasks that it cannot kill, and its own
//! pauses.

use std::collections::BTreeSet;

use muster_model::time::MonotonicMs;
use muster_monitor::health::{Sample, THIS_HOST};
use muster_supervisor::RunId;

use crate::limits::SELF_CHECK_PERIOD_MS;

/// The rule about tasks that hang in the kernel.
const TASK_STUCK: &str = "task_stuck";
/// The rule about an agent that pauses.
const AGENT_WATCHDOG: &str = "agent_watchdog";
/// Delay of a tick from which on it is reported, in seconds.
const LATE_S: u64 = 2;

/// What the checks found, for the health monitor.
#[derive(Debug, Default)]
pub(crate) struct SelfChecks {
    stuck: BTreeSet<RunId>,
    /// Time of the last report of stuck tasks.
    reported_at: Option<MonotonicMs>,
    ticked_at: Option<MonotonicMs>,
    was_late: bool,
}

impl SelfChecks {
    /// Notes a task that cannot be killed: it hangs in the kernel.
    pub(super) fn stuck(&mut self, id: RunId) {
        self.stuck.insert(id);
        self.reported_at = None;
    }

    /// Notes that a task is gone.
    pub(super) fn gone(&mut self, id: &RunId) {
        if self.stuck.remove(id) {
            self.reported_at = None;
        }
    }

    /// Advances the time and returns the samples that are due.
    pub(super) fn tick(&mut self, now: MonotonicMs) -> Vec<Sample> {
        self.stuck_now(now)
            .into_iter()
            .chain(self.late(now))
            .collect()
    }

    /// Number of stuck tasks: repeated while there are any, and once at zero.
    fn stuck_now(&mut self, now: MonotonicMs) -> Option<Sample> {
        let is_due = match self.reported_at {
            Some(at) => !self.stuck.is_empty() && now.since(at) >= SELF_CHECK_PERIOD_MS,
            None => true,
        };
        if !is_due {
            return None;
        }
        self.reported_at = Some(now);
        let tasks = i64::try_from(self.stuck.len()).unwrap_or(i64::MAX);
        Some(Sample::new(TASK_STUCK, THIS_HOST, &[("tasks", tasks)]))
    }

    /// Length of a pause of the agent, if it was long, and once zero afterwards.
    fn late(&mut self, now: MonotonicMs) -> Option<Sample> {
        let before = self.ticked_at.replace(now)?;
        let still_s = now.since(before) / 1_000;
        let is_late = still_s >= LATE_S;
        let is_reportable = is_late || self.was_late;
        self.was_late = is_late;
        let still_s = i64::try_from(still_s).unwrap_or(i64::MAX);
        is_reportable.then(|| Sample::new(AGENT_WATCHDOG, THIS_HOST, &[("still_s", still_s)]))
    }
}

#[cfg(test)]
mod tests {
    use muster_model::ids::{AttemptEpoch, JobId, TaskIndex, TaskKey};

    use super::*;

    fn run(job: u64) -> RunId {
        RunId {
            key: TaskKey {
                job: JobId(job),
                task: TaskIndex(0),
            },
            epoch: AttemptEpoch(1),
        }
    }

    fn reports(checks: &mut SelfChecks, now_ms: u64) -> Vec<String> {
        let samples = checks.tick(MonotonicMs(now_ms)).into_iter();
        let text = |sample: Sample| format!("{} {}", sample.rule, sample.metrics[0].1);
        samples.map(text).collect()
    }

    #[test]
    fn stuck_tasks_are_reported_periodically_until_they_are_gone() {
        let mut checks = SelfChecks::default();
        // A starting agent reports zero: the finding may be from before its restart.
        assert_eq!(reports(&mut checks, 0), ["task_stuck 0"]);
        assert_eq!(reports(&mut checks, 500), Vec::<String>::new());
        checks.stuck(run(1));
        checks.stuck(run(2));
        assert_eq!(reports(&mut checks, 1_000), ["task_stuck 2"]);
        assert_eq!(reports(&mut checks, 1_500), Vec::<String>::new());
        for now_ms in (2_000..1_000 + SELF_CHECK_PERIOD_MS).step_by(500) {
            assert_eq!(reports(&mut checks, now_ms), Vec::<String>::new());
        }
        assert_eq!(
            reports(&mut checks, 1_000 + SELF_CHECK_PERIOD_MS),
            ["task_stuck 2"]
        );
        checks.gone(&run(2));
        let next_ms = 1_500 + SELF_CHECK_PERIOD_MS;
        assert_eq!(reports(&mut checks, next_ms), ["task_stuck 1"]);
        checks.gone(&run(1));
        checks.gone(&run(7));
        assert_eq!(reports(&mut checks, next_ms + 500), ["task_stuck 0"]);
        assert_eq!(reports(&mut checks, next_ms + 1_000), Vec::<String>::new());
    }

    #[test]
    fn an_agent_that_was_frozen_reports_for_how_long() {
        let mut checks = SelfChecks::default();
        reports(&mut checks, 0);
        assert_eq!(reports(&mut checks, 1_900), Vec::<String>::new());
        assert_eq!(reports(&mut checks, 33_000), ["agent_watchdog 31"]);
        assert_eq!(reports(&mut checks, 33_500), ["agent_watchdog 0"]);
        assert_eq!(reports(&mut checks, 34_000), Vec::<String>::new());
    }
}
