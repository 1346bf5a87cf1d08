//! I4 and I5: what was acknowledged exists, once, under the id that was answered.

use std::collections::BTreeMap;

use muster_core::ids::{JobId, RequestId};
use muster_core::lifecycle::JobPhase;
use muster_core::state::{Answer, State};

/// Submissions and cancels that a client was told about.
#[derive(Clone, Debug, Default)]
pub struct Acknowledged {
    jobs: BTreeMap<RequestId, JobId>,
    cancels: Vec<JobId>,
    contradictions: Vec<LostWrite>,
}

/// An acknowledgement that the state does not honour.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LostWrite {
    /// I4: the job is not there.
    #[error("job {0} was acknowledged and is gone")]
    Job(JobId),
    /// I5: one request was answered twice, differently.
    #[error("request {request} was answered with job {first} and with job {second}")]
    TwoJobs {
        /// Which request.
        request: RequestId,
        /// First answer.
        first: JobId,
        /// Second answer.
        second: JobId,
    },
    /// I4: the cancel was undone.
    #[error("job {job} was cancelled and is {phase:?}")]
    Cancel {
        /// Which job.
        job: JobId,
        /// Its phase.
        phase: JobPhase,
    },
    /// I5: the state holds another answer than the client got.
    #[error("request {request} was answered with job {told}, the state says {kept:?}")]
    OtherAnswer {
        /// Which request.
        request: RequestId,
        /// What the client was told.
        told: JobId,
        /// What the state holds.
        kept: Option<Answer>,
    },
}

impl Acknowledged {
    /// A client got this answer to a submission.
    pub fn submitted(&mut self, request: RequestId, job: JobId) {
        if let Some(first) = self.jobs.insert(request, job)
            && first != job
        {
            self.contradictions.push(LostWrite::TwoJobs {
                request,
                first,
                second: job,
            });
        }
    }

    /// A client was told that a job is being cancelled.
    pub fn cancelled(&mut self, job: JobId) {
        self.cancels.push(job);
    }

    /// Number of acknowledged submissions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// True if nothing was acknowledged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The acknowledged jobs.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        self.jobs.values().copied()
    }

    /// Everything that `state` does not honour.
    #[must_use]
    pub fn judge(&self, state: &State) -> Vec<LostWrite> {
        let mut found = self.contradictions.clone();
        for (request, told) in &self.jobs {
            if state.job(*told).is_none() {
                found.push(LostWrite::Job(*told));
            }
            let kept = state
                .requests
                .get(*request)
                .map(|stored| stored.answer.clone());
            if kept != Some(Answer::Job(*told)) {
                found.push(LostWrite::OtherAnswer {
                    request: *request,
                    told: *told,
                    kept,
                });
            }
        }
        for job in &self.cancels {
            if let Some(known) = state.job(*job)
                && known.cancel.is_none()
            {
                found.push(LostWrite::Cancel {
                    job: *job,
                    phase: known.phase,
                });
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_the_state_does_not_know_is_lost() {
        let mut acknowledged = Acknowledged::default();
        acknowledged.submitted(RequestId(1), JobId(5));
        let found = acknowledged.judge(&State::default());
        assert!(found.contains(&LostWrite::Job(JobId(5))));
    }

    #[test]
    fn two_answers_to_one_request_are_noticed() {
        let mut acknowledged = Acknowledged::default();
        acknowledged.submitted(RequestId(1), JobId(5));
        acknowledged.submitted(RequestId(1), JobId(6));
        let found = acknowledged.judge(&State::default());
        assert!(matches!(found[0], LostWrite::TwoJobs { .. }));
    }
}
