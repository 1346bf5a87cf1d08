//! Submission and cancellation of jobs.

use std::sync::Arc;

use muster_model::command::{StopCause, StopReason};
use muster_model::event::EventKind;
use muster_model::ids::{JobId, RequestKey, UnitId, UnitIndex};
use muster_model::job::{CancelRequest, Ledger, UnitCounts};
use muster_model::lifecycle::{JobPhase, UnitPhase};
use muster_model::limits;
use muster_model::rejection::Rejection;
use muster_model::spec::{self, JobSpec};

use crate::apply::attempt::texts;
use crate::apply::job::{admission, dependencies, unsatisfiable};
use crate::apply::{Step, require_length};
use crate::state::{Answer, Job, PipelineMark};

impl Step<'_> {
    pub(in crate::apply) fn submit_job(
        &mut self,
        request: RequestKey,
        spec: &Arc<JobSpec>,
    ) -> Result<Answer, Rejection> {
        self.once(request, |step| {
            let violations = spec::validate(spec);
            if !violations.is_empty() {
                return Err(Rejection::InvalidSpec(violations));
            }
            let mut violations = unsatisfiable::of_state(step.state, spec);
            violations.extend(dependencies::unfit(step.state, spec));
            if !violations.is_empty() {
                return Err(Rejection::InvalidSpec(violations));
            }
            step.enter_queue(&spec.queue, 1)?;
            let id = JobId(step.state.revision.get());
            step.add_job(id, spec, None);
            Ok(Answer::Job(id))
        })
    }

    /// Checks that a queue accepts this number of additional jobs.
    pub(in crate::apply) fn check_queue(&self, name: &str, jobs: u64) -> Result<(), Rejection> {
        if let Some(child) = admission::child_of(self.state, name) {
            return Err(Rejection::QueueHasChildren {
                queue: name.to_owned(),
                child: child.to_owned(),
            });
        }
        let queue = self
            .state
            .queues
            .get(name)
            .ok_or_else(|| Rejection::UnknownQueue(name.to_owned()))?;
        if queue.retired {
            return Err(Rejection::QueueRetired(name.to_owned()));
        }
        if queue.live_jobs.saturating_add(jobs) > queue.config.live_jobs_max {
            return Err(Rejection::QueueFull {
                queue: name.to_owned(),
                limit: queue.config.live_jobs_max,
            });
        }
        Ok(())
    }

    /// Counts this number of jobs as live in a queue, after checking that it accepts them.
    pub(in crate::apply) fn enter_queue(&mut self, name: &str, jobs: u64) -> Result<(), Rejection> {
        self.check_queue(name, jobs)?;
        if let Some(queue) = self.state.queues.get_mut(name) {
            Arc::make_mut(queue).live_jobs += jobs;
        }
        Ok(())
    }

    /// Adds a job that its queue already counts as live.
    pub(in crate::apply) fn add_job(
        &mut self,
        id: JobId,
        spec: &Arc<JobSpec>,
        pipeline: Option<&Arc<PipelineMark>>,
    ) {
        let job = Job {
            id,
            spec: Arc::clone(spec),
            pipeline: pipeline.cloned(),
            submitted_at: self.state.time,
            phase: JobPhase::Queued,
            finished_at: None,
            finish_reason: String::new(),
            cancel: None,
            suspension: None,
            units: imbl::OrdMap::new(),
            first_untouched: UnitIndex(0),
            requeued: imbl::OrdSet::new(),
            counts: UnitCounts {
                waiting: spec.units(),
                ..UnitCounts::default()
            },
            ledger: Ledger::default(),
        };
        self.state.index.add_to_pipeline(&job);
        self.state.jobs.insert(id, Arc::new(job));
        self.hold(id);
        if !self.state.index.is_held(id) {
            self.index_waiting(id, true);
        }
        self.emit(EventKind::JobSubmitted {
            job: id,
            name: spec.name.clone(),
            user: spec.user.clone(),
            queue: spec.queue.clone(),
        });
    }

    pub(in crate::apply) fn cancel_job(
        &mut self,
        request: RequestKey,
        id: JobId,
        author: &str,
        reason: &str,
    ) -> Result<Answer, Rejection> {
        require_length("author", author, "NAME_BYTES_MAX", limits::NAME_BYTES_MAX)?;
        require_length("reason", reason, "TEXT_BYTES_MAX", limits::TEXT_BYTES_MAX)?;
        self.once(request, |step| {
            let job = step.known_job(id)?;
            if job.phase.is_terminal() {
                let phase = job.phase;
                return Err(Rejection::JobFinished { job: id, phase });
            }
            if job.cancel.is_none() {
                step.begin_cancel(id, author, reason);
            }
            Ok(Answer::Done)
        })
    }

    fn begin_cancel(&mut self, id: JobId, author: &str, reason: &str) {
        self.emit(EventKind::JobCancelRequested {
            job: id,
            author: author.to_owned(),
            reason: reason.to_owned(),
        });
        self.end_suspension(id);
        let at = self.state.time;
        let cause = StopCause::new(StopReason::Cancelled, texts::author_text(author, reason));
        for unit in self.active_units(id) {
            let grace_ms = self.job_mut(id).spec.stop_grace_ms;
            self.order_stop(unit, cause.clone(), grace_ms);
        }
        self.end_delays_of(id);
        self.give_up_claims_of(id, "its job was cancelled");
        self.edit_job(id, |job| {
            for unit in std::mem::take(&mut job.requeued) {
                job.move_unit(unit, UnitPhase::Cancelled);
            }
            job.counts.cancelled += std::mem::take(&mut job.counts.waiting);
            job.cancel = Some(CancelRequest {
                author: author.to_owned(),
                reason: reason.to_owned(),
                at,
            });
        });
    }

    /// Returns the units of a job that hold resources.
    pub(in crate::apply) fn active_units(&mut self, id: JobId) -> Vec<UnitId> {
        let job = self.job_mut(id);
        if job.counts.active() == 0 {
            return Vec::new();
        }
        job.units
            .iter()
            .filter(|(_, unit)| unit.phase.holds_resources())
            .map(|(index, _)| UnitId::new(id, *index))
            .collect()
    }

    /// Ends the back-offs of a job's waiting units.
    fn end_delays_of(&mut self, id: JobId) {
        let state = &mut *self.state;
        if let Some(job) = state.jobs.get(&id) {
            for unit in &job.requeued {
                if let Some(known) = job.unit(*unit) {
                    let entry = (known.not_before, UnitId::new(id, *unit));
                    state.index.delayed.remove(&entry);
                }
            }
        }
    }
}
