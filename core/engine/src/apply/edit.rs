//! Changes of one host or one unit, with all updates of indexes and counts.

use std::sync::Arc;

use muster_model::event::EventKind;
use muster_model::host::Host;
use muster_model::ids::{AttemptEpoch, HostId, JobId, RequestKey, UnitId, UnitIndex};
use muster_model::lifecycle::{JobPhase, UnitPhase};
use muster_model::limits;
use muster_model::rejection::Rejection;

use crate::apply::Step;
use crate::state::{Answer, Attempt, HostEntries, Job, State, StoredAnswer, Unit};

impl Step<'_> {
    /// Executes a user's request once: a repetition gets the first answer, and another request under the same
    /// id is refused. A refused request is not stored, so it may be repeated once the reason is gone.
    pub(super) fn once(
        &mut self,
        request: RequestKey,
        carry_out: impl FnOnce(&mut Self) -> Result<Answer, Rejection>,
    ) -> Result<Answer, Rejection> {
        if let Some(stored) = self.state.requests.get(request.id) {
            return if stored.fingerprint == request.fingerprint {
                Ok(stored.answer.clone())
            } else {
                Err(Rejection::RequestReused)
            };
        }
        if self.state.requests.len() >= limits::REQUESTS_KEPT_MAX {
            return Err(Rejection::ClusterFull {
                what: "answers kept for repeated requests".to_owned(),
                limit_name: "REQUESTS_KEPT_MAX".to_owned(),
                limit: limits::REQUESTS_KEPT_MAX as u64,
            });
        }
        let answer = carry_out(self)?;
        self.state.requests.insert(
            request.id,
            StoredAnswer {
                revision: self.state.revision,
                at: self.state.time,
                fingerprint: request.fingerprint,
                answer: answer.clone(),
            },
        );
        Ok(answer)
    }

    /// Changes an existing host and updates the index.
    pub(super) fn edit_host<R>(&mut self, id: HostId, change: impl FnOnce(&mut Host) -> R) -> R {
        let host = self
            .state
            .hosts
            .get_mut(&id)
            .expect("hosts named by the state exist");
        let before = HostEntries::of(host);
        let result = change(Arc::make_mut(host));
        let after = HostEntries::of(host);
        self.state.index.replace_host(id, &before, &after);
        if !before.has_equal_pool_counts(&after) {
            self.count_in_pool(id);
        }
        result
    }

    /// Marks the desired state of a host as changed.
    pub(super) fn touch_desired(&mut self, id: HostId) {
        let revision = self.state.revision;
        let host = self
            .state
            .hosts
            .get_mut(&id)
            .expect("hosts named by the state exist");
        Arc::make_mut(host).desired_revision = revision;
    }

    /// Returns the job that a command names.
    pub(super) fn known_job(&self, id: JobId) -> Result<&Job, Rejection> {
        self.state.job(id).ok_or(Rejection::UnknownJob(id))
    }

    /// Returns the current attempt that a command names.
    pub(super) fn current_attempt(
        &self,
        id: UnitId,
        epoch: AttemptEpoch,
    ) -> Result<(&Job, &Attempt), Rejection> {
        let UnitId { job, unit } = id;
        let known = self.known_job(job)?;
        if !known.has_unit(unit) {
            return Err(Rejection::UnknownUnit { job, unit });
        }
        let attempt = self.state.attempt(id);
        let attempt = attempt.filter(|attempt| attempt.epoch == epoch);
        let given = epoch;
        let attempt = attempt.ok_or(Rejection::StaleAttempt { job, unit, given })?;
        Ok((known, attempt))
    }

    /// Changes a unit's attempt in a field that its position in the preemption order depends on.
    pub(super) fn edit_attempt<R>(&mut self, id: UnitId, change: impl FnOnce(&mut Unit) -> R) -> R {
        self.forget_attempt(id);
        let result = change(self.unit_mut(id));
        self.note_attempt(id);
        result
    }

    /// Removes a unit's attempt from the index; called before it ends or changes.
    pub(super) fn forget_attempt(&mut self, id: UnitId) {
        let State { jobs, index, .. } = &mut *self.state;
        let job = jobs.get(&id.job);
        if let Some((job, unit)) = job.and_then(|job| Some((job, job.unit(id.unit)?))) {
            index.remove_attempt(id, &job.spec, unit);
        }
    }

    /// Adds a unit's new or changed attempt to the index.
    pub(super) fn note_attempt(&mut self, id: UnitId) {
        let State { jobs, index, .. } = &mut *self.state;
        let job = jobs.get(&id.job);
        if let Some((job, unit)) = job.and_then(|job| Some((job, job.unit(id.unit)?))) {
            index.add_attempt(id, &job.spec, unit);
        }
    }

    /// Returns an existing job for changes that affect neither counts nor indexes.
    pub(super) fn job_mut(&mut self, id: JobId) -> &mut Job {
        self.state
            .job_mut(id)
            .expect("jobs named by the state exist")
    }

    /// Returns the record of a unit of an existing job, for changes that affect neither counts nor indexes.
    pub(super) fn unit_mut(&mut self, id: UnitId) -> &mut Unit {
        self.job_mut(id.job).unit_mut(id.unit)
    }

    /// Returns the attempt of a unit that has one, for changes that affect neither counts nor indexes.
    pub(super) fn attempt_mut(&mut self, id: UnitId) -> &mut Attempt {
        self.job_mut(id.job).attempt_mut(id.unit)
    }

    /// Changes an existing job; then updates its phase and index entries to its counts, and ends it when no
    /// unit is live any more.
    pub(super) fn edit_job<R>(&mut self, id: JobId, change: impl FnOnce(&mut Job) -> R) -> R {
        let job = self.job_mut(id);
        let waited = job.wants_room();
        let result = change(job);
        job.phase = job.derived_phase();
        let waits = job.wants_room();
        let ended = job.phase.is_terminal();
        if waited != waits {
            self.index_waiting(id, waits);
        }
        if ended {
            self.finish_job(id);
        }
        result
    }

    /// Updates the index when a job begins or ceases to have waiting units.
    pub(super) fn index_waiting(&mut self, id: JobId, waits: bool) {
        let State {
            jobs,
            queues,
            index,
            ..
        } = &mut *self.state;
        let job = jobs.get(&id).expect("jobs named by the state exist");
        if waits && !index.is_held(id) {
            index.add_waiting(queues, job);
        } else if !waits {
            index.remove_waiting(queues, job);
        }
    }

    fn finish_job(&mut self, id: JobId) {
        let time = self.state.time;
        let job = self.job_mut(id);
        if job.phase == JobPhase::Cancelled {
            job.finish_reason = job.cancel.as_ref().map_or_else(String::new, |cancel| {
                let colon = if cancel.reason.is_empty() { "" } else { ": " };
                format!("cancelled by {}{colon}{}", cancel.author, cancel.reason)
            });
        }
        job.finished_at = Some(time);
        job.suspension = None;
        let (phase, reason) = (job.phase, job.finish_reason.clone());
        let spec = Arc::clone(&job.spec);
        self.finished.push_back(id);
        let State { jobs, index, .. } = &mut *self.state;
        index.forget_held(id);
        index.suspended.remove(&id);
        index.finished.insert((time, id));
        if let Some(job) = jobs.get(&id) {
            index.run_times.learn(job);
        }
        let queue = self
            .state
            .queues
            .get_mut(spec.queue.as_str())
            .expect("queues are kept while jobs live in them");
        Arc::make_mut(queue).live_jobs -= 1;
        self.remove_if_over(&spec.queue);
        self.emit(EventKind::JobFinished {
            job: id,
            phase,
            reason,
        });
    }
}

impl Job {
    /// Returns a unit's record for update; creates records for untouched units before it too, because only
    /// units from `first_untouched` on have none.
    pub(super) fn unit_mut(&mut self, index: UnitIndex) -> &mut Unit {
        while self.first_untouched <= index {
            self.units.insert(self.first_untouched, Arc::default());
            self.requeued.insert(self.first_untouched);
            self.first_untouched.0 += 1;
        }
        let unit = self
            .units
            .get_mut(&index)
            .expect("units before the first untouched one have a record");
        Arc::make_mut(unit)
    }

    /// Returns a unit's current attempt for update.
    pub(super) fn attempt_mut(&mut self, index: UnitIndex) -> &mut Attempt {
        let attempt = self
            .unit_mut(index)
            .attempt
            .as_mut()
            .expect("the unit was found to have an attempt");
        Arc::make_mut(attempt)
    }

    /// Moves a unit to another phase and updates the counts.
    pub(super) fn move_unit(&mut self, index: UnitIndex, next: UnitPhase) {
        let phase = std::mem::replace(&mut self.unit_mut(index).phase, next);
        assert!(
            phase.may_become(next),
            "unit {index} of job {} cannot go from {phase:?} to {next:?}",
            self.id
        );
        if phase == UnitPhase::Waiting {
            self.requeued.remove(&index);
        }
        if next == UnitPhase::Waiting {
            self.requeued.insert(index);
        }
        *self.counts.of_mut(phase) -= 1;
        *self.counts.of_mut(next) += 1;
    }

    /// Derives the phase from the counts.
    fn derived_phase(&self) -> JobPhase {
        let counts = &self.counts;
        if counts.live() == 0 {
            if self.cancel.is_some() {
                JobPhase::Cancelled
            } else if counts.failed > 0 {
                JobPhase::Failed
            } else {
                JobPhase::Succeeded
            }
        } else if self.cancel.is_some() {
            JobPhase::Cancelling
        } else if counts.active() > 0 {
            JobPhase::Running
        } else {
            JobPhase::Queued
        }
    }
}
