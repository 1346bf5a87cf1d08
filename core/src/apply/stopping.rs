//! Orders to stop an attempt before its time.

use crate::apply::Step;
use crate::command::StopReason;
use crate::event::EventKind;
use crate::ids::{AttemptEpoch, HostId, JobId, UnitIndex};
use crate::lifecycle::UnitPhase;
use crate::limits;
use crate::rejection::Rejection;
use crate::spec::JobSpec;
use crate::state::{Answer, Attempt, StopOrder};

impl Step<'_> {
    pub(super) fn stop_attempt(
        &mut self,
        id: JobId,
        unit: UnitIndex,
        epoch: AttemptEpoch,
        reason: &StopReason,
    ) -> Result<Answer, Rejection> {
        let (job, _) = self.current_attempt(id, unit, epoch)?;
        let grace_ms = grace_ms(&job.spec, reason);
        self.order_stop(id, unit, reason.clone(), grace_ms);
        Ok(Answer::Done)
    }

    /// Tells a unit's attempt to stop. Of several orders the first one's reason stands, and the earliest
    /// end of the grace.
    pub(super) fn order_stop(
        &mut self,
        id: JobId,
        unit: UnitIndex,
        reason: StopReason,
        grace_ms: u64,
    ) {
        let at = self.state.time;
        let attempt = self.job_mut(id).attempt_mut(unit);
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
                attempt.stop = Some(StopOrder {
                    reason: reason.clone(),
                    at,
                    grace_ms,
                });
                let epoch = attempt.epoch;
                self.edit_job(id, |job| job.move_unit(unit, UnitPhase::Stopping));
                self.emit(EventKind::AttemptStopping {
                    job: id,
                    unit,
                    epoch,
                    reason,
                });
            }
        }
        for host in hosts {
            self.touch_desired(host);
        }
    }
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

/// Milliseconds between asking an attempt's tasks to stop and killing them.
pub(super) fn grace_ms(spec: &JobSpec, reason: &StopReason) -> u64 {
    match reason {
        StopReason::GpuFault { .. }
        | StopReason::MemberLost
        | StopReason::MemberFailed
        | StopReason::Assembly => spec.stop_grace_ms.min(limits::BROKEN_GRACE_MS_MAX),
        StopReason::Cancelled
        | StopReason::Drain { .. }
        | StopReason::Preempted
        | StopReason::RunTime
        | StopReason::Moved => spec.stop_grace_ms,
    }
}
