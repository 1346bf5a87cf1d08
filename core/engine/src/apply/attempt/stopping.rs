//! Orders to stop an attempt or a member early.

use std::sync::Arc;

use muster_model::command::{StopCause, StopReason};
use muster_model::event::EventKind;
use muster_model::ids::{AttemptEpoch, HostId, JobId, UnitId, UnitIndex};
use muster_model::job::StopOrder;
use muster_model::lifecycle::UnitPhase;
use muster_model::limits;
use muster_model::rejection::Rejection;
use muster_model::spec::JobSpec;

use crate::apply::Step;
use crate::apply::attempt::texts;
use crate::state::{Answer, Attempt, Job, Running, State, UsageKind, amounts_held};

impl Step<'_> {
    pub(in crate::apply) fn stop_attempt(
        &mut self,
        job: JobId,
        unit: UnitIndex,
        epoch: AttemptEpoch,
        reason: &StopReason,
    ) -> Result<Answer, Rejection> {
        let id = UnitId::new(job, unit);
        let (job, attempt) = self.current_attempt(id, epoch)?;
        if *reason == StopReason::NotSwapped && !is_incomplete_too_long(self.state, job, attempt) {
            // The attempt was stopping when the other work arrived.
            return Ok(Answer::Done);
        }
        let grace_ms = grace_ms(&job.spec, reason);
        let detail = texts::overdue(&self.state.hosts, job, attempt, reason);
        let cause = StopCause::new(reason.clone(), detail);
        self.order_stop(id, cause, grace_ms);
        Ok(Answer::Done)
    }

    /// Orders a unit's attempt to stop. Of several orders the reason of the first and the earliest end of the
    /// grace period apply.
    pub(in crate::apply) fn order_stop(&mut self, id: UnitId, cause: StopCause, grace_ms: u64) {
        self.end_deadline(id);
        let at = self.state.time;
        let attempt = self.attempt_mut(id);
        let hosts = hosts_of_live_tasks(attempt);
        match &mut attempt.stop {
            Some(earlier) => {
                let kill_at = at.after(grace_ms);
                if kill_at >= earlier.at.after(earlier.grace_ms) {
                    return;
                }
                earlier.grace_ms = kill_at.since(earlier.at);
            }
            None => {
                let epoch = attempt.epoch;
                let cause = in_one_line(cause);
                let order = StopOrder::new(cause.clone(), at, grace_ms);
                self.edit_attempt(id, |unit| {
                    let attempt = unit.attempt.as_mut().map(Arc::make_mut);
                    let attempt = attempt.expect("it was found above");
                    attempt.stop = Some(order);
                    if let Some(membership) = &mut attempt.membership {
                        membership.leaving = None;
                    }
                });
                self.state.index.prepared_gangs.remove(&id);
                self.end_vacancy(id);
                self.recount(id, |attempt| attempt.stop = None);
                let UnitId { job, unit } = id;
                self.edit_job(job, |job| job.move_unit(unit, UnitPhase::Stopping));
                self.emit(EventKind::AttemptStopping {
                    job,
                    unit,
                    epoch,
                    cause,
                });
            }
        }
        for host in hosts {
            self.touch_desired(host);
        }
    }

    /// Removes an attempt from those that need a replacement member.
    pub(in crate::apply) fn end_vacancy(&mut self, id: UnitId) {
        let State { jobs, index, .. } = &mut *self.state;
        let job = jobs.get(&id.job);
        let attempt = job.and_then(|job| job.unit(id.unit)?.attempt.as_deref());
        if let Some(attempt) = attempt {
            index.remove_vacancy(id, attempt);
        }
    }

    /// Removes the deadline of a unit's attempt.
    pub(in crate::apply) fn end_deadline(&mut self, id: UnitId) {
        let State { jobs, index, .. } = &mut *self.state;
        let job = jobs.get(&id.job);
        let attempt = job.and_then(|job| Some((job, job.unit(id.unit)?.attempt.as_deref()?)));
        if let Some((job, attempt)) = attempt {
            index.remove_deadline(id, job, attempt);
        }
    }

    /// Moves an attempt's amounts to their current kind of usage; `undo` restores the attempt as it was when
    /// it was counted.
    pub(in crate::apply) fn recount(&mut self, id: UnitId, undo: impl FnOnce(&mut Attempt)) {
        let Some(Running { job, attempt, .. }) = Running::of(self.state, id) else {
            return;
        };
        let mut before = attempt.clone();
        undo(&mut before);
        let (was, is) = (UsageKind::held_by(&before), UsageKind::held_by(attempt));
        if was != is {
            let amounts = amounts_held(&self.state.hosts, &job.spec, attempt);
            let spec = Arc::clone(&job.spec);
            self.state.index.remove_usage(&spec, was, &amounts);
            self.state.index.add_usage(&spec, is, &amounts);
        }
    }
}

/// Shortens the details of a cause to one line of at most `STOP_DETAIL_BYTES_MAX` bytes.
pub(in crate::apply) fn in_one_line(cause: StopCause) -> StopCause {
    let StopCause { reason, mut detail } = cause;
    let line = detail.lines().next().map_or(0, str::len);
    detail.truncate(detail.floor_char_boundary(line.min(limits::STOP_DETAIL_BYTES_MAX)));
    StopCause { reason, detail }
}

fn is_incomplete_too_long(state: &State, job: &Job, attempt: &Attempt) -> bool {
    let until = attempt.incomplete_until(&job.spec);
    until.is_some_and(|until| until <= state.time)
}

fn hosts_of_live_tasks(attempt: &Attempt) -> Vec<HostId> {
    let mut hosts: Vec<HostId> = attempt
        .tasks
        .iter()
        .filter(|run| !run.phase.is_terminal())
        .map(|run| run.host)
        .collect();
    hosts.sort_unstable();
    hosts.dedup();
    hosts
}

/// Returns the milliseconds between asking an attempt's tasks to stop and killing them.
pub(in crate::apply) fn grace_ms(spec: &JobSpec, reason: &StopReason) -> u64 {
    match reason {
        StopReason::GpuFault { .. }
        | StopReason::HostFault { .. }
        | StopReason::MemberLost
        | StopReason::MemberFailed
        | StopReason::AssemblyTimeout
        | StopReason::NotSwapped => spec.stop_grace_ms.min(limits::LOST_GANG_GRACE_MS_MAX),
        StopReason::Cancelled
        | StopReason::Drain { .. }
        | StopReason::Preempted
        | StopReason::TimeLimit
        | StopReason::Defragmented
        | StopReason::Suspended => spec.stop_grace_ms,
    }
}
