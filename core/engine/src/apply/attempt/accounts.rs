//! GPU-time accounting at placements and ends.

use muster_model::desired::RestartReason;
use muster_model::ids::{JobId, UnitId};
use muster_model::job::ledger::{Entry, TimeUse};
use muster_model::time::TimeMs;

use crate::apply::Step;
use crate::apply::attempt::verdict::Verdict;
use crate::state::{Attempt, Job, Joined, Pause, Running, TaskRun, Unit, Vacancy};

impl Step<'_> {
    /// Charges the waiting time of a unit that is being placed on this number of GPUs.
    pub(in crate::apply) fn account_for_wait(&mut self, id: UnitId, gpus: u32) {
        let Some(job) = self.state.job(id.job) else {
            return;
        };
        let known = job.unit(id.unit);
        let since = known
            .and_then(|known| known.past.last())
            .map_or(job.submitted_at, |past| past.ended_at);
        let cause = known.map_or(RestartReason::First, |known| known.restart_reason);
        let waited_ms = self.state.time.since(since);
        self.record_times(id.job, gpus, &[(TimeUse::Queue, cause, waited_ms)]);
    }

    /// Accounts for the ended attempt of a unit with this verdict: the members placed with it, then each
    /// member that joined later, then a place that is vacant.
    pub(in crate::apply) fn account_for_end(
        &mut self,
        id: UnitId,
        attempt: &Attempt,
        verdict: &Verdict,
    ) {
        let Some(unit) = self.state.unit(id) else {
            return;
        };
        let now = self.state.time;
        let started_at = attempt.running_at.unwrap_or(now);
        let course = AttemptTimeline {
            placed_at: attempt.placed_at,
            began_for: unit.restart_reason,
            started_at,
            kept_until: match verdict {
                Verdict::Succeeded => now,
                _ => kept_until(unit, attempt).unwrap_or(started_at),
            },
            ended_for: match verdict {
                Verdict::Requeued { reason, .. } => *reason,
                Verdict::Succeeded | Verdict::Cancelled | Verdict::Failed { .. } => {
                    RestartReason::User
                }
            },
            ended_at: now,
        };
        self.count_reliability(attempt, course.ended_for);
        let pauses = self.pauses(id.job, attempt);
        let joined_later = attempt.tasks.iter().filter_map(|run| {
            let joined = attempt.joined(run.task)?;
            Some((count_gpus(run), course.of_late_member(joined)))
        });
        let joined_later: Vec<(u32, AttemptTimeline)> = joined_later.collect();
        let gpus = attempt.gpus();
        let gpus_later: u32 = joined_later.iter().map(|(gpus, _)| *gpus).sum();
        // Without GPUs the attempt counts as one; if all members joined later, it has nothing of its own.
        if gpus == 0 || gpus > gpus_later {
            self.record_times(id.job, gpus - gpus_later, &course.times(&pauses));
        }
        for (gpus, course) in joined_later.iter().filter(|(gpus, _)| *gpus > 0) {
            self.record_times(id.job, *gpus, &course.times(&pauses));
        }
        if let Some(vacancy) = attempt.vacancy() {
            self.account_for_vacancy(id.job, vacancy);
        }
    }

    /// Counts the host time of an attempt that ran, and its end as a failure if the infrastructure caused it.
    fn count_reliability(&mut self, attempt: &Attempt, ended_for: RestartReason) {
        let Some(running_at) = attempt.running_at else {
            return;
        };
        let hosts = attempt.hosts().len() as u64;
        let host_ms = self.state.time.since(running_at).saturating_mul(hosts);
        let reliability = &mut self.state.reliability;
        reliability.host_ms = reliability.host_ms.saturating_add(host_ms);
        reliability.failures += u64::from(ended_for == RestartReason::Infra);
    }

    /// Accounts for a member that is gone while the others continue: its work since the newest checkpoint
    /// counts as lost, as far as anyone but the job's framework knows. `position` is the member's index in
    /// the attempt's tasks.
    pub(in crate::apply) fn account_for_member(
        &mut self,
        id: UnitId,
        position: usize,
        ended_for: RestartReason,
    ) {
        let Some(Running { unit, attempt, .. }) = Running::of(self.state, id) else {
            return;
        };
        let run = &attempt.tasks[position];
        let now = self.state.time;
        let (began_for, placed_at, running_at) = match attempt.joined(run.task) {
            Some(joined) => (joined.reason, joined.placed_at, joined.running_at),
            None => (unit.restart_reason, attempt.placed_at, attempt.running_at),
        };
        let started_at = running_at.unwrap_or(now);
        let kept_until = kept_until(unit, attempt).unwrap_or(started_at);
        let course = AttemptTimeline {
            placed_at,
            began_for,
            started_at,
            kept_until: kept_until.max(started_at),
            ended_for,
            ended_at: now,
        };
        let times = course.times(&self.pauses(id.job, attempt));
        let gpus = count_gpus(run);
        self.state.reliability.failures += u64::from(ended_for == RestartReason::Infra);
        if gpus > 0 {
            self.record_times(id.job, gpus, &times);
        }
    }

    /// Accounts for the time in which a place in a gang was vacant.
    pub(in crate::apply) fn account_for_vacancy(&mut self, job: JobId, vacancy: &Vacancy) {
        let gpus = count_gpus(&vacancy.run);
        if gpus > 0 {
            let waited_ms = self.state.time.since(vacancy.since);
            self.record_times(job, gpus, &[(TimeUse::Queue, vacancy.reason, waited_ms)]);
        }
    }

    /// Returns the pauses of an attempt up to now.
    fn pauses(&self, id: JobId, attempt: &Attempt) -> Vec<Pause> {
        let job = self.state.job(id);
        let open = job.and_then(|job| attempt.open_pause(job, self.state.time));
        attempt.pauses.iter().copied().chain(open).collect()
    }

    fn record_times(&mut self, id: JobId, gpus: u32, times: &[(TimeUse, RestartReason, u64)]) {
        for (kind, cause, span_ms) in times {
            let entry = Entry {
                kind: *kind,
                cause: *cause,
                gpu_ms: span_ms.saturating_mul(u64::from(gpus.max(1))),
            };
            let job: &mut Job = self.job_mut(id);
            job.ledger.add(entry);
            if gpus > 0 {
                self.state.ledger.add(entry);
            }
        }
    }
}

/// Timeline of an attempt, or of one member, from placement to end.
struct AttemptTimeline {
    placed_at: TimeMs,
    /// Reason of the placement: the cause to which the start-up time is charged.
    began_for: RestartReason,
    /// When it ran; its end if it never did.
    started_at: TimeMs,
    /// End of the work that is kept; the start if nothing is.
    kept_until: TimeMs,
    /// Cause to which the lost rest is charged.
    ended_for: RestartReason,
    ended_at: TimeMs,
}

impl AttemptTimeline {
    /// Returns the timeline of a member that joined after the placement and ended with the attempt.
    fn of_late_member(&self, joined: &Joined) -> Self {
        let started_at = joined.running_at.unwrap_or(self.ended_at);
        Self {
            placed_at: joined.placed_at,
            began_for: joined.reason,
            started_at,
            kept_until: self.kept_until.max(started_at),
            ..*self
        }
    }

    /// Splits its time by use. Pauses are neither work nor a loss.
    fn times(&self, pauses: &[Pause]) -> [(TimeUse, RestartReason, u64); 4] {
        let paused_ms = |from: TimeMs, until: TimeMs| -> u64 {
            pauses
                .iter()
                .map(|pause| pause.within_ms(from, until))
                .sum()
        };
        let moved_ms = |from: TimeMs, until: TimeMs| {
            let span_ms = until.since(from);
            span_ms.saturating_sub(paused_ms(from, until))
        };
        let (began_for, ended_for) = (self.began_for, self.ended_for);
        let start_ms = moved_ms(self.placed_at, self.started_at);
        let kept_ms = moved_ms(self.started_at, self.kept_until);
        let lost_ms = moved_ms(self.kept_until, self.ended_at);
        let still_ms = paused_ms(self.placed_at, self.ended_at);
        [
            (TimeUse::Restart, began_for, start_ms),
            (TimeUse::Kept, ended_for, kept_ms),
            (TimeUse::Work, ended_for, lost_ms),
            (TimeUse::Pause, ended_for, still_ms),
        ]
    }
}

fn count_gpus(run: &TaskRun) -> u32 {
    u32::try_from(run.gpus.len()).unwrap_or(u32::MAX)
}

/// Returns the time up to which an attempt's work is in a readable checkpoint; `None` without one.
fn kept_until(unit: &Unit, attempt: &Attempt) -> Option<TimeMs> {
    let newest = unit.newest_checkpoint()?;
    let running_at = attempt.running_at?;
    (newest.epoch == attempt.epoch).then(|| newest.committed_at.max(running_at))
}
