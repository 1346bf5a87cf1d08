//! Reports of a task: checkpoints, steps, and unreadable checkpoints.

use std::collections::BTreeMap;

use muster_model::heartbeat::{CheckpointReport, DamageReport};
use muster_model::limits::CHECKPOINTS_REPORTED_MAX;
use muster_model::time::MonotonicMs;

use crate::limits::{PROGRESS_REPORT_INTERVAL_MS, SAVES_BEGUN_MAX};
use crate::link::protocol::{SupervisorMessage, UnkillableTask};

/// State that must be sent again to a new agent.
#[derive(Debug, Default)]
pub(crate) struct TaskReports {
    /// The task's main process, once it has outlived a quick task.
    pub(crate) started: Option<i32>,
    /// The recorded checkpoints that are still reported.
    pub(crate) checkpoints: Newest,
    /// Recorded checkpoints that the task could not read.
    pub(crate) damaged: Vec<DamageReport>,
    /// Progress of the task.
    pub(crate) progress: Progress,
    /// Present once it could not be killed.
    pub(crate) stuck: Option<UnkillableTask>,
    /// Checkpoints being written.
    pub(crate) saves: Saves,
}

impl TaskReports {
    /// The complete state as messages.
    pub(crate) fn messages(&self) -> Vec<SupervisorMessage> {
        let started = self.started.map(|pid| SupervisorMessage::Started { pid });
        let checkpoints = self
            .checkpoints
            .all()
            .iter()
            .cloned()
            .map(SupervisorMessage::Checkpoint);
        let damaged = self.damaged.iter().cloned().map(SupervisorMessage::Damaged);
        let progress = self
            .progress
            .newest
            .map(|step| SupervisorMessage::Progress { step });
        let stuck = self.stuck.clone().map(SupervisorMessage::Stuck);
        let all = started.into_iter().chain(checkpoints).chain(damaged);
        all.chain(progress).chain(stuck).collect()
    }
}

/// The newest checkpoints of a task, at most as many as its worker reports: its agent may have been away for
/// all of them.
#[derive(Debug, Default)]
pub(crate) struct Newest(Vec<CheckpointReport>);

impl Newest {
    /// Oldest first.
    pub(crate) fn all(&self) -> &[CheckpointReport] {
        &self.0
    }

    /// Adds one; beyond the limit, drops the oldest.
    pub(crate) fn add(&mut self, report: CheckpointReport) {
        if self.0.len() >= CHECKPOINTS_REPORTED_MAX {
            self.0.remove(0);
        }
        self.0.push(report);
    }
}

/// The current step of a task. The task may report every step; the agent receives one now and then.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    newest: Option<u64>,
    /// Earliest time of the next report, while an unreported step exists.
    due: Option<MonotonicMs>,
    reported_at: Option<MonotonicMs>,
}

impl Progress {
    /// Sets the current step.
    pub(crate) fn set(&mut self, step: u64, now: MonotonicMs) {
        if self.newest.replace(step) != Some(step) && self.due.is_none() {
            let due = self
                .reported_at
                .map(|at| at.after(PROGRESS_REPORT_INTERVAL_MS));
            self.due = Some(due.map_or(now, |due| due.max(now)));
        }
    }

    /// When [`Self::take_due`] has something to report.
    pub(crate) const fn due(&self) -> Option<MonotonicMs> {
        self.due
    }

    /// The step that is due to be reported now.
    pub(crate) fn take_due(&mut self, now: MonotonicMs) -> Option<u64> {
        self.due.take_if(|due| *due <= now)?;
        self.reported_at = Some(now);
        self.newest
    }
}

/// Checkpoints that a task is writing, with their start times.
#[derive(Debug, Default)]
pub(crate) struct Saves(BTreeMap<u64, MonotonicMs>);

impl Saves {
    /// Starts the time of a save, or restarts it. Beyond the limit, drops the one of the lowest step.
    pub(crate) fn begin(&mut self, step: u64, now: MonotonicMs) {
        self.0.insert(step, now);
        if self.0.len() > SAVES_BEGUN_MAX {
            self.0.pop_first();
        }
    }

    /// Milliseconds since the save of this step began, if it did; drops earlier saves as abandoned.
    pub(crate) fn end(&mut self, step: u64, now: MonotonicMs) -> Option<u64> {
        let later = self.0.split_off(&step.saturating_add(1));
        let begun = std::mem::replace(&mut self.0, later);
        begun.get(&step).map(|at| now.since(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: MonotonicMs = MonotonicMs(1_000);

    #[test]
    fn progress_is_reported_at_once_and_then_at_intervals() {
        let mut progress = Progress::default();
        progress.set(1, START);
        assert_eq!(progress.take_due(START), Some(1));
        progress.set(2, START.after(1));
        progress.set(3, START.after(2));
        assert_eq!(progress.take_due(START.after(3)), None);
        assert_eq!(
            progress.due(),
            Some(START.after(PROGRESS_REPORT_INTERVAL_MS))
        );
        assert_eq!(
            progress.take_due(START.after(PROGRESS_REPORT_INTERVAL_MS)),
            Some(3)
        );
        progress.set(3, START.after(PROGRESS_REPORT_INTERVAL_MS + 1));
        assert_eq!(progress.due(), None);
    }

    #[test]
    fn a_save_takes_from_its_begin_to_its_commit() {
        let mut saves = Saves::default();
        assert_eq!(saves.end(5, START), None);
        saves.begin(6, START);
        saves.begin(7, START.after(50));
        saves.begin(7, START.after(100));
        assert_eq!(saves.end(7, START.after(400)), Some(300));
        // The one before was abandoned.
        assert_eq!(saves.end(6, START.after(500)), None);
        for step in 0..2 * SAVES_BEGUN_MAX as u64 {
            saves.begin(step, START);
        }
        assert_eq!(saves.0.len(), SAVES_BEGUN_MAX);
    }
}
