//! Simulated workers and users, driven by the engine's events.

use muster_engine::state::{Attempt, State, TaskRun};
use muster_harness::{exit_with, reports};
use muster_model::command::{Command, Exit, StopReason, TaskOutcome};
use muster_model::desired::RestartReason;
use muster_model::event::EventKind;
use muster_model::ids::{AttemptEpoch, HostId, JobId, UnitIndex};

use crate::fault::failure_message;
use crate::measure::JobEnd;
use crate::trace::Ending;
use crate::world::SimulateError;
use crate::world::happening::Event;
use crate::world::run::World;

/// Every job of a trace is one unit: a gang, or a single task.
const UNIT: UnitIndex = UnitIndex(0);
/// Exit code of jobs that failed in the original cluster.
const CODE_FAILED: i32 = 1;

impl World<'_> {
    /// Handles events until there are no more.
    pub(super) fn follow(&mut self) -> Result<(), SimulateError> {
        while let Some(event) = self.engine.observer.pop() {
            self.take(&event)?;
        }
        Ok(())
    }

    fn take(&mut self, event: &EventKind) -> Result<(), SimulateError> {
        match event {
            EventKind::AttemptPlaced { job, epoch, .. } => self.begin(*job, *epoch)?,
            EventKind::AttemptStopping { job, cause, .. } => self.stop(*job, &cause.reason)?,
            EventKind::AttemptEnded { job, hosts, .. } => self.attempt_ended(*job, hosts),
            EventKind::UnitRequeued { job, reason, .. } => {
                if let Some(position) = self.positions.get(job) {
                    let preempted = *reason == RestartReason::Preempt;
                    self.observer.requeued(*position, preempted);
                }
            }
            EventKind::JobFinished { job, .. } => {
                if let Some(position) = self.positions.remove(job) {
                    let end = if self.runs[position].is_done {
                        JobEnd::Finished
                    } else {
                        JobEnd::Ruined
                    };
                    self.end_job(position, end);
                }
            }
            EventKind::HealthChanged { .. } => self.take_health(event),
            EventKind::HostHealthChanged { host, .. } => self.look_at_host(*host),
            _ => {}
        }
        Ok(())
    }

    /// The workers start a job's tasks, which continue with its remaining work.
    fn begin(&mut self, id: JobId, epoch: AttemptEpoch) -> Result<(), SimulateError> {
        let Some(&job) = self.positions.get(&id) else {
            return Ok(());
        };
        let now = self.engine.now;
        self.runs[job].attempt = Some((epoch, now));
        self.runs[job].attempts += 1;
        if let Some(left_ms) = self.observer.left_ms(job) {
            let done_at = now.after(left_ms);
            self.agenda.add(done_at, Event::WorkDone { job, epoch });
        }
        self.expect_checkpoint(job, epoch);
        self.schedule_fault_effects(id, epoch);
        let Some(attempt) = current_attempt(&self.engine.state, id) else {
            return Ok(());
        };
        self.observer.placed(job, attempt);
        let hosts = attempt.hosts();
        let state = &self.engine.state;
        let starts = reports::of_attempt(state, id, UNIT, attempt, reports::started);
        for host in hosts {
            self.look_at_host(host);
        }
        self.report(&starts)
    }

    /// The workers stop the running tasks of an attempt.
    fn stop(&mut self, id: JobId, reason: &StopReason) -> Result<(), SimulateError> {
        tracing::trace!(job = %id, %reason, "stopping");
        if let (StopReason::Defragmented, Some(position)) = (reason, self.positions.get(&id)) {
            self.observer.moves(*position);
        }
        self.exit_live_tasks(id, &reports::terminated())
    }

    /// A job has completed its work and ends as in the trace.
    pub(super) fn work_done(
        &mut self,
        job: usize,
        epoch: AttemptEpoch,
    ) -> Result<(), SimulateError> {
        if self.runs[job].attempt.map(|(current, _)| current) != Some(epoch) {
            return Ok(()); // stopped before its time
        }
        let Some(id) = self.runs[job].id else {
            return Ok(());
        };
        self.runs[job].is_done = true;
        match self.scenario.jobs[job].ending {
            None | Some(Ending::Pass) => self.exit_live_tasks(id, &exit_with(0))?,
            Some(Ending::Failed) => {
                let exit = Exit {
                    evidence: self.own_failure_message(job).to_owned(),
                    ..exit_with(CODE_FAILED)
                };
                self.exit_live_tasks(id, &exit)?;
            }
            Some(Ending::Killed) => {
                let request = self.engine.next_request();
                self.engine.carry_out(&Command::CancelJob {
                    request,
                    job: id,
                    author: "its user".to_owned(),
                    reason: String::new(),
                })?;
            }
        }
        self.follow()
    }

    /// A host is gone, and all its tasks with it.
    pub(super) fn fence_tasks_on(&mut self, host: HostId) -> Result<(), SimulateError> {
        for job in self.jobs_on(host) {
            let is_here = |run: &TaskRun| run.host == host;
            self.end_live_tasks(job, &TaskOutcome::Fenced, is_here)?;
            self.follow()?;
        }
        Ok(())
    }

    fn exit_live_tasks(&mut self, job: JobId, exit: &Exit) -> Result<(), SimulateError> {
        self.end_live_tasks(job, &TaskOutcome::Exited(exit.clone()), |_| true)
    }

    /// Reports the same end for all running tasks of a job within the given scope.
    pub(super) fn end_live_tasks(
        &mut self,
        job: JobId,
        outcome: &TaskOutcome,
        concerned: impl Fn(&TaskRun) -> bool,
    ) -> Result<(), SimulateError> {
        let state = &self.engine.state;
        let Some(attempt) = current_attempt(state, job) else {
            return Ok(());
        };
        let ends = reports::of_attempt(state, job, UNIT, attempt, |run| {
            concerned(run).then(|| outcome.clone())
        });
        self.report(&ends)
    }

    fn report(&mut self, reports: &[Command]) -> Result<(), SimulateError> {
        for report in reports {
            self.engine.carry_out(report)?;
        }
        Ok(())
    }

    fn attempt_ended(&mut self, id: JobId, hosts: &[HostId]) {
        for host in hosts {
            self.look_at_host(*host);
        }
        let Some(&job) = self.positions.get(&id) else {
            return;
        };
        let run = &mut self.runs[job];
        if let Some((_, since)) = run.attempt.take() {
            let ran_ms = self.engine.now.since(since);
            self.observer.attempt_ended(job, ran_ms, run.is_done);
        }
    }

    /// The final output of a job that fails for its own reasons; empty unless health is simulated.
    fn own_failure_message(&self, job: usize) -> &'static str {
        match self.scenario.health_features {
            Some(_) => failure_message(&self.scenario.jobs[job]),
            None => "",
        }
    }

    pub(super) fn look_at_host(&mut self, host: HostId) {
        self.count_out(host);
        if let Some(host) = self.engine.state.host(host) {
            self.observer.record_host(host);
        }
    }
}

pub(super) fn current_attempt(state: &State, job: JobId) -> Option<&Attempt> {
    state.job(job)?.unit(UNIT)?.attempt.as_deref()
}
