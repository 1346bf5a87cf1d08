//! Outcomes of single tasks and their effect on the attempt.

use std::sync::Arc;

use muster_model::command::{EXIT_RUN_AGAIN, Exit, StopCause, StopReason, TaskOutcome, TaskReport};
use muster_model::event::EventKind;
use muster_model::ids::{HostId, TaskIndex, UnitId};
use muster_model::job::StopOrder;
use muster_model::lifecycle::{TaskPhase, UnitPhase};
use muster_model::rejection::Rejection;
use muster_model::spec::{ExitMeaning, JobSpec};
use muster_model::{evidence, limits};

use crate::apply::Step;
use crate::apply::attempt::stopping::grace_ms;
use crate::apply::attempt::texts::describe;
use crate::apply::attempt::verdict::was_lost_to_infrastructure;
use crate::state::{Answer, Attempt, State, TaskRun};

impl Step<'_> {
    pub(in crate::apply) fn report_task(
        &mut self,
        report: &TaskReport,
    ) -> Result<Answer, Rejection> {
        let attempt = self.attempt_of_member(report)?;
        let position = attempt
            .position(report.task)
            .ok_or(Rejection::UnknownTask {
                job: report.job,
                epoch: report.epoch,
                task: report.task,
            })?;
        let (from, to) = (attempt.tasks[position].phase, phase_of(&report.outcome));
        if from == to {
            return Ok(Answer::Done);
        }
        let waits_for_none = to == TaskPhase::Prepared && attempt.barrier.is_none();
        if !from.may_become(to) || waits_for_none {
            return Err(Rejection::TaskTransition {
                job: report.job,
                task: report.task,
                from,
                to,
            });
        }
        self.record(report, position);
        self.follow_up(report, position);
        Ok(Answer::Done)
    }

    /// Returns the current attempt in which the reported task has the reported epoch: a replacement member
    /// has an epoch of its own.
    fn attempt_of_member(&self, report: &TaskReport) -> Result<&Attempt, Rejection> {
        let job = self.known_job(report.job)?;
        let unit = report.unit;
        if !job.has_unit(unit) {
            return Err(Rejection::UnknownUnit {
                job: report.job,
                unit,
            });
        }
        let attempt = job.unit(unit).and_then(|known| known.attempt.as_deref());
        let is_meant = |attempt: &&Attempt| attempt.epoch_of(report.task) == report.epoch;
        attempt.filter(is_meant).ok_or(Rejection::StaleAttempt {
            job: report.job,
            unit,
            given: report.epoch,
        })
    }

    /// Records the outcome.
    fn record(&mut self, report: &TaskReport, position: usize) {
        let job = self.job_mut(report.job);
        let spec = Arc::clone(&job.spec);
        let attempt = job.attempt_mut(report.unit);
        let stop = stop_order(attempt, report.task).map(|order| order.reason.clone());
        let is_rank_0 = attempt.rank(position) == 0;
        let run = &mut attempt.tasks[position];
        let had_begun = run.phase.has_begun();
        run.phase = phase_of(&report.outcome);
        if let TaskOutcome::Exited(exit) = &report.outcome {
            run.exit = Some(shortened(exit));
        }
        let host = run.host;
        let run = &attempt.tasks[position];
        // A task stopped before it started decides nothing; the stop order does.
        let never_began = stop.is_some() && could_not_start(run);
        let was_lost = had_begun && was_lost_to_infrastructure(run);
        if run.phase.is_terminal()
            && !ended_well(&spec, stop.as_ref(), run)
            && !never_began
            && (decides(run, attempt) || was_lost && may_be_consequence(&spec, attempt))
        {
            attempt.decisive = Some(report.task);
        }
        self.emit(event_of(report, host));
        if report.outcome == TaskOutcome::Started {
            let now = self.state.time;
            self.state.health.started(host, now);
        }
        match report.outcome {
            TaskOutcome::Prepared {
                master_port: Some(port),
            } if is_rank_0 => self.note_master_port(UnitId::new(report.job, report.unit), port),
            _ => {}
        }
    }

    /// Advances the attempt if it waited for this task or cannot continue without it.
    fn follow_up(&mut self, report: &TaskReport, position: usize) {
        let id = UnitId::new(report.job, report.unit);
        let job = self.job_mut(id.job);
        let spec = Arc::clone(&job.spec);
        let attempt = job.attempt_mut(id.unit);
        let order = stop_order(attempt, report.task).cloned();
        let run = &attempt.tasks[position];
        let (host, terminal) = (run.host, run.phase.is_terminal());
        let leaves = order.is_some() && attempt.stop.is_none();
        let stop = order.as_ref().map(|order| &order.reason);
        let is_broken = terminal && attempt.stop.is_none() && !ended_well(&spec, stop, run);
        let mut newest_first = attempt.tasks.iter().rev();
        if newest_first.all(|run| run.phase.is_terminal()) {
            if let Some(order) = order.filter(|_| leaves && is_broken) {
                // No member is left to continue without it.
                self.order_stop(id, order.cause(), order.grace_ms);
            }
            self.end_attempt(id);
            return;
        }
        if is_broken && self.vacate(id, position) {
            return;
        }
        if is_broken {
            let run = self.attempt_mut(id).tasks[position].clone();
            let cause = order.map_or_else(
                || StopCause::new(stop_reason(run.phase), describe(&run, &self.state.hosts)),
                |order| order.cause(),
            );
            let requests_restart = exit_code(&run) == Some(EXIT_RUN_AGAIN);
            let grace_ms = if requests_restart {
                spec.stop_grace_ms
            } else {
                grace_ms(&spec, &cause.reason)
            };
            self.order_stop(id, cause, grace_ms);
        } else {
            if leaves && terminal {
                self.forget_leaving(id, report.task);
            }
            self.note_running(report);
            self.note_joined(report);
            self.note_whole(id);
        }
        if terminal {
            // The next desired state acknowledges the report to the worker.
            self.touch_desired(host);
        }
    }

    fn note_running(&mut self, report: &TaskReport) {
        let id = UnitId::new(report.job, report.unit);
        let UnitId { job: job_id, unit } = id;
        let time = self.state.time;
        let job = self.job_mut(job_id);
        let placed = job.unit(unit).map(|known| known.phase) == Some(UnitPhase::Placed);
        if !placed || !all_begun(job.attempt_mut(unit)) {
            return;
        }
        self.edit_attempt(id, |unit| {
            let attempt = unit.attempt.as_mut().map(Arc::make_mut);
            attempt.expect("it was found above").running_at = Some(time);
        });
        self.end_assembly(id);
        self.edit_job(job_id, |job| job.move_unit(unit, UnitPhase::Running));
        self.emit(EventKind::AttemptRunning {
            job: job_id,
            unit,
            epoch: report.epoch,
        });
    }
}

impl Step<'_> {
    /// Removes the assembly deadline of a gang that runs in time.
    fn end_assembly(&mut self, id: UnitId) {
        let State { jobs, index, .. } = &mut *self.state;
        let Some(job) = jobs.get(&id.job) else { return };
        let attempt = job.unit(id.unit).and_then(|known| known.attempt.as_deref());
        let limited = |attempt: &&Attempt| {
            job.spec.scheduling.assembly_ms_max.is_some() || attempt.barrier.is_some()
        };
        if let Some(attempt) = attempt.filter(limited) {
            let mut assembling = attempt.clone();
            assembling.running_at = None;
            index.remove_deadline(id, job, &assembling);
            index.add_deadline(id, job, attempt);
        }
    }
}

/// Returns the stop order of a task: its attempt's, or its own.
fn stop_order(attempt: &Attempt, task: TaskIndex) -> Option<&StopOrder> {
    let leaving = attempt.leaving().filter(|leaving| leaving.task == task);
    let own = leaving.map(|leaving| &leaving.order);
    attempt.stop.as_ref().or(own)
}

/// Whether all tasks have started. They mostly start in order, so the last one is checked first.
fn all_begun(attempt: &Attempt) -> bool {
    let mut runs = attempt.tasks.iter().rev();
    runs.all(|run| run.phase.has_begun())
}

fn phase_of(outcome: &TaskOutcome) -> TaskPhase {
    match outcome {
        TaskOutcome::Started => TaskPhase::Running,
        TaskOutcome::Exited(_) => TaskPhase::Exited,
        TaskOutcome::Gone { .. } => TaskPhase::Gone,
        TaskOutcome::Fenced => TaskPhase::Fenced,
        TaskOutcome::Prepared { .. } => TaskPhase::Prepared,
    }
}

/// Returns the exit code of a task that ended on its own.
pub(in crate::apply) fn exit_code(run: &TaskRun) -> Option<i32> {
    run.exit
        .as_ref()
        .filter(|exit| !exit.lease_expired && exit.start_error.is_none())
        .and_then(|exit| exit.code)
}

/// Whether a task ended because it could not be started.
pub(in crate::apply) fn could_not_start(run: &TaskRun) -> bool {
    let exit = run.exit.as_ref();
    exit.is_some_and(|exit| exit.start_error.is_some())
}

/// Whether a task succeeded: it ended with 0, or with an exit that its job counts as success.
///
/// A signal or a memory limit counts as success only while its attempt is not stopped from outside: the
/// signal may be the one that stops it.
pub(in crate::apply) fn ended_well(
    spec: &JobSpec,
    stop: Option<&StopReason>,
    run: &TaskRun,
) -> bool {
    if exit_code(run) == Some(0) {
        return true;
    }
    let Some(exit) = &run.exit else { return false };
    let stopped_from_outside = !matches!(stop, None | Some(StopReason::MemberFailed));
    let counts = exit.code.is_some() || !stopped_from_outside;
    counts && spec.lifecycle.meaning(exit) == Some(ExitMeaning::Succeed)
}

/// Whether a task's failure decides that of its attempt: the first one reported does, until another task
/// reports an earlier failure, or the first one turns out to follow from another's failure.
fn decides(run: &TaskRun, attempt: &Attempt) -> bool {
    let Some(known) = attempt.decisive.and_then(|task| attempt.run_of(task)) else {
        return true;
    };
    match (own_end(run), own_end(known)) {
        (Some(new), Some(known)) => evidence::is_earlier_cause(&new.evidence, &known.evidence),
        _ => false,
    }
}

/// Returns the exit of a task if its evidence counts. Tasks that were lost, cut off or never started are
/// judged without it, and so is a task that asks to run again.
fn own_end(run: &TaskRun) -> Option<&Exit> {
    let exit = run.exit.as_ref()?;
    let judged = exit.lease_expired || exit.start_error.is_some() || exit.was_host_out_of_memory();
    let again = exit_code(run) == Some(EXIT_RUN_AGAIN);
    (!judged && !again).then_some(exit)
}

/// Whether the deciding task may have failed only because another one was lost: peers of a dead process often
/// report first. An exit named by the job's rules is intentional.
fn may_be_consequence(spec: &JobSpec, attempt: &Attempt) -> bool {
    let known = attempt.decisive.and_then(|task| attempt.run_of(task));
    known.and_then(own_end).is_some_and(|exit| {
        spec.lifecycle.meaning(exit).is_none() && evidence::may_follow_a_loss(&exit.evidence)
    })
}

fn stop_reason(phase: TaskPhase) -> StopReason {
    match phase {
        TaskPhase::Gone | TaskPhase::Fenced => StopReason::MemberLost,
        TaskPhase::Assigned | TaskPhase::Prepared | TaskPhase::Running | TaskPhase::Exited => {
            StopReason::MemberFailed
        }
    }
}

fn event_of(report: &TaskReport, host: HostId) -> EventKind {
    let TaskReport {
        job,
        unit,
        epoch,
        task,
        ..
    } = *report;
    let lost = |detail: &str| EventKind::TaskLost {
        job,
        unit,
        epoch,
        task,
        host,
        detail: limits::shortened(detail).to_owned(),
    };
    match &report.outcome {
        TaskOutcome::Prepared { .. } => EventKind::TaskPrepared {
            job,
            unit,
            epoch,
            task,
            host,
        },
        TaskOutcome::Started => EventKind::TaskStarted {
            job,
            unit,
            epoch,
            task,
            host,
        },
        TaskOutcome::Exited(exit) => EventKind::TaskExited {
            job,
            unit,
            epoch,
            task,
            host,
            exit: shortened(exit),
        },
        TaskOutcome::Gone { detail } => lost(detail),
        TaskOutcome::Fenced => lost("its host was silent for longer than its lease"),
    }
}

/// Shortens a worker's texts to their limit: refusing a report would keep the task alive forever.
fn shortened(exit: &Exit) -> Exit {
    Exit {
        start_error: exit
            .start_error
            .as_deref()
            .map(|text| limits::shortened(text).to_owned()),
        evidence: limits::shortened(&exit.evidence).to_owned(),
        ..exit.clone()
    }
}
