//! Exchange between a supervisor and its task: registrations, and stop requests.

use muster_model::time::MonotonicMs;

use crate::checkpoint::checkpoints::{ConnectionId, Finality, Registration};
use crate::link::control::{Commit, TaskRequest};
use crate::link::protocol::{ControlAnswer, SupervisorMessage};
use crate::supervise::{Supervisor, Watched};
use crate::task::stopping::Stopping;

impl Supervisor<'_> {
    /// Handles a request of the task. No answer if it comes later, or was sent.
    pub(super) fn handle_task_request(
        &mut self,
        task: &mut Watched,
        connection: ConnectionId,
        request: TaskRequest,
    ) -> Option<ControlAnswer> {
        let now = self.clock.now();
        let registration = match request {
            TaskRequest::Begin(step) => {
                self.reports.saves.begin(step, now);
                return Some(ControlAnswer::done());
            }
            TaskRequest::Progress(step) => {
                self.reports.progress.set(step, now);
                return Some(ControlAnswer::done());
            }
            TaskRequest::Watch { gang } => {
                let stop = self.stopping.as_ref().map(Stopping::notice);
                self.connections.watch(connection, stop);
                if gang {
                    self.connections.watch_gang(connection, self.gang.moved());
                }
                return None;
            }
            TaskRequest::Commit(Commit { mut report, last }) => {
                report.save_ms = self.reports.saves.end(report.step, now);
                let asked = self.stopping.is_some();
                let finality = last.map_or(Finality::Registered { asked }, Finality::Stated);
                Registration::Commit(report, finality)
            }
            TaskRequest::Damage(report) => Registration::Damage(report),
        };
        self.start_keeper(task);
        match &task.keeper {
            Some(keeper) => keeper.register(connection, registration).err(),
            None => Some(ControlAnswer::refused("the task cannot be watched")),
        }
    }

    /// Reports the task's progress to the agent, if a report is due.
    pub(super) fn send_progress(&mut self, now: MonotonicMs) {
        if let Some(step) = self.reports.progress.take_due(now) {
            self.connections
                .send_to_agent(&SupervisorMessage::Progress { step });
        }
    }

    /// Time of the next scheduled action, if the lease requires none until `then`.
    pub(super) fn next_check(&self, then: MonotonicMs, task: &Watched) -> MonotonicMs {
        let stopping = self.stopping.as_ref().and_then(Stopping::next_due);
        let keeper = task.keeper.is_none().then_some(task.keeper_due);
        let progress = self.reports.progress.due();
        let dues = stopping.into_iter().chain(keeper).chain(progress);
        dues.fold(then, MonotonicMs::min)
    }

    /// Arms the alarm for the next action of the lease, and sends its time to the guard.
    pub(crate) fn wake_at(&mut self, then: MonotonicMs) {
        if let Some(alarm) = &mut self.alarm {
            alarm.set(then, self.clock);
        }
        if let Some(pulse) = self.pulse {
            pulse.set_deadline(self.clock.to_boottime_ms(then));
        }
    }

    /// Begins to stop the task, or shortens its grace.
    pub(super) fn ask_to_stop(&mut self, reason: String, grace_ms: u64) {
        let now = self.clock.now();
        let is_first = self.lease.stop(now, grace_ms);
        // A paused process handles no signal.
        self.pause_state.resume();
        if let Some(stopping) = &mut self.stopping {
            stopping.shorten(now, grace_ms);
        }
        // A task that has not begun need not be asked.
        if !is_first || grace_ms == 0 || self.prepared.is_some() {
            return;
        }
        let warning = self.spec.assignment.warning;
        let listens = self.connections.has_watchers();
        let mut stopping = Stopping::begin(self.directory, reason, grace_ms, now, warning, listens);
        if self.has_saved {
            stopping.saved(now);
        }
        self.connections.notify_watchers(stopping.notice());
        self.stopping = Some(stopping);
    }

    /// Handles a recorded checkpoint: a task that was asked to stop before it was complete needs no more
    /// time, unless more follow. An earlier checkpoint may have been delayed by a slow disk or the scan
    /// interval: the last one is still to come.
    pub(super) fn note_saved(&mut self, finality: Finality) {
        self.has_saved = finality == Finality::Stated(true);
        let Some(stopping) = &mut self.stopping else {
            return;
        };
        let is_last = match finality {
            Finality::Stated(is_last) => is_last,
            Finality::Registered { asked } => asked,
            Finality::Marked(at) => stopping.began_before(at),
        };
        if is_last {
            stopping.saved(self.clock.now());
        }
    }
}
