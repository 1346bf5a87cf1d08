//! Suspension and resumption of jobs.
//!
//! A suspended job gets no new resources. Its running tasks are paused in place, or release everything and
//! wait, as its specification says. Leases run in both cases: a paused task ends with its lease like any
//! other.

use muster_model::command::{StopCause, StopReason};
use muster_model::event::EventKind;
use muster_model::ids::{HostId, JobId, RequestKey, UnitId};
use muster_model::job::Suspension;
use muster_model::limits;
use muster_model::rejection::Rejection;
use muster_model::spec::SuspendMode;

use crate::apply::attempt::texts;
use crate::apply::{Step, require_length};
use crate::state::{Answer, Attempt, Index, Job, State};

impl Step<'_> {
    pub(in crate::apply) fn suspend_job(
        &mut self,
        request: RequestKey,
        id: JobId,
        author: &str,
        reason: &str,
    ) -> Result<Answer, Rejection> {
        check_texts(author, reason)?;
        self.once(request, |step| {
            let job = step.unfinished(id)?;
            if let Some(known) = &job.suspension {
                let detail = format!("is suspended already, by {}", known.author);
                return Err(Rejection::Suspension { job: id, detail });
            }
            step.begin_suspension(id, author, reason);
            Ok(Answer::Done)
        })
    }

    pub(in crate::apply) fn resume_job(
        &mut self,
        request: RequestKey,
        id: JobId,
        author: &str,
        reason: &str,
    ) -> Result<Answer, Rejection> {
        check_texts(author, reason)?;
        self.once(request, |step| {
            if step.unfinished(id)?.suspension.is_none() {
                let detail = "is not suspended".to_owned();
                return Err(Rejection::Suspension { job: id, detail });
            }
            step.emit(EventKind::JobResumed {
                job: id,
                author: author.to_owned(),
                reason: reason.to_owned(),
            });
            step.end_suspension(id);
            Ok(Answer::Done)
        })
    }

    /// Returns a job that has neither ended nor is being cancelled.
    fn unfinished(&self, id: JobId) -> Result<&Job, Rejection> {
        let job = self.known_job(id)?;
        if job.phase.is_terminal() {
            let phase = job.phase;
            return Err(Rejection::JobFinished { job: id, phase });
        }
        if job.cancel.is_some() {
            let detail = "is being cancelled".to_owned();
            return Err(Rejection::Suspension { job: id, detail });
        }
        Ok(job)
    }

    fn begin_suspension(&mut self, id: JobId, author: &str, reason: &str) {
        let mode = self.job_mut(id).spec.lifecycle.suspend;
        self.emit(EventKind::JobSuspended {
            job: id,
            author: author.to_owned(),
            reason: reason.to_owned(),
            mode,
        });
        self.give_up_claims_of(id, "its job was suspended");
        let suspension = Suspension {
            author: author.to_owned(),
            reason: reason.to_owned(),
            at: self.state.time,
        };
        self.state.index.suspended.insert(id);
        self.edit_deadlines(id, Index::remove_deadline);
        self.edit_job(id, |job| job.suspension = Some(suspension));
        self.edit_deadlines(id, Index::add_deadline);
        match mode {
            SuspendMode::Keep => self.touch_hosts_of(id),
            SuspendMode::Release => {
                let cause =
                    StopCause::new(StopReason::Suspended, texts::author_text(author, reason));
                for unit in self.active_units(id) {
                    let grace_ms = self.job_mut(id).spec.stop_grace_ms;
                    self.order_stop(unit, cause.clone(), grace_ms);
                }
            }
        }
    }

    /// Ends a suspension: the job is resumed or ends.
    pub(in crate::apply) fn end_suspension(&mut self, id: JobId) {
        if self.state.index.suspended.remove(&id).is_some() {
            self.edit_deadlines(id, Index::remove_deadline);
            self.note_pauses(id);
            self.edit_job(id, |job| job.suspension = None);
            self.edit_deadlines(id, Index::add_deadline);
            self.touch_hosts_of(id);
        }
    }

    /// Removes the deadlines of a job's attempts before a change, or adds them after it.
    fn edit_deadlines(&mut self, id: JobId, edit: fn(&mut Index, UnitId, &Job, &Attempt)) {
        let State { jobs, index, .. } = &mut *self.state;
        let Some(job) = jobs.get(&id) else { return };
        for (unit, known) in &job.units {
            if let Some(attempt) = known.attempt.as_deref() {
                edit(index, UnitId::new(id, *unit), job, attempt);
            }
        }
    }

    /// Records the pauses from the suspension up to now.
    fn note_pauses(&mut self, id: JobId) {
        let now = self.state.time;
        let job = self.job_mut(id);
        let pauses: Vec<_> = job
            .units
            .iter()
            .filter_map(|(unit, known)| {
                Some((*unit, known.attempt.as_ref()?.open_pause(job, now)?))
            })
            .collect();
        for (unit, pause) in pauses {
            job.attempt_mut(unit).remember_pause(pause);
        }
    }

    /// Marks the desired state of the hosts of a job's tasks as changed.
    fn touch_hosts_of(&mut self, id: JobId) {
        let units = self.job_mut(id).units.values();
        let attempts = units.filter_map(|unit| unit.attempt.as_deref());
        let mut hosts: Vec<HostId> = attempts
            .flat_map(|attempt| attempt.tasks.iter().map(|run| run.host))
            .collect();
        hosts.sort_unstable();
        hosts.dedup();
        for host in hosts {
            self.touch_desired(host);
        }
    }
}

fn check_texts(author: &str, reason: &str) -> Result<(), Rejection> {
    require_length("author", author, "NAME_BYTES_MAX", limits::NAME_BYTES_MAX)?;
    require_length("reason", reason, "TEXT_BYTES_MAX", limits::TEXT_BYTES_MAX)
}
