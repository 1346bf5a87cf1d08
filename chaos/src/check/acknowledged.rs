//! I4 and I5: what was acknowledged exists, once, under the id that was answered.

use std::collections::{BTreeMap, BTreeSet};

use muster_core::ids::{JobId, RequestId};
use muster_core::lifecycle::JobPhase;
use muster_core::state::{Answer, State};

/// Submissions and cancels that a client was told about.
#[derive(Clone, Debug, Default)]
pub struct Acknowledged {
    asked: BTreeSet<RequestId>,
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
    /// I5: requests were carried out more than once.
    #[error("{requests} requests made {jobs} jobs")]
    TooMany {
        /// Submissions that were ever sent, answered or not.
        requests: usize,
        /// Jobs in the state.
        jobs: usize,
    },
    /// I9: a linearizable read after the answer did not see the job.
    #[error(
        "job {job} was acknowledged, and a later linearizable read on replica {replica} does not see it"
    )]
    Unseen {
        /// Which job.
        job: JobId,
        /// Who was asked.
        replica: u32,
    },
}

impl Acknowledged {
    /// A client is about to send a submission.
    pub fn asked(&mut self, request: RequestId) {
        self.asked.insert(request);
    }

    /// A linearizable read on a replica did not see an acknowledged job.
    pub fn unseen(&mut self, job: JobId, replica: u32) {
        self.contradictions.push(LostWrite::Unseen { job, replica });
    }

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

    /// Answers that contradict each other, or what was read after them, in order.
    #[must_use]
    pub fn contradictions(&self) -> &[LostWrite] {
        &self.contradictions
    }

    /// Everything that `state` does not honour.
    #[must_use]
    pub fn judge(&self, state: &State) -> Vec<LostWrite> {
        let mut found = Vec::new();
        if state.jobs.len() > self.asked.len() {
            found.push(LostWrite::TooMany {
                requests: self.asked.len(),
                jobs: state.jobs.len(),
            });
        }
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
    use muster_core::testing::{Cluster, single};

    use super::*;

    #[test]
    fn a_job_that_the_state_does_not_know_is_lost() {
        let mut acknowledged = Acknowledged::default();
        acknowledged.asked(RequestId(1));
        acknowledged.submitted(RequestId(1), JobId(5));
        let found = acknowledged.judge(&State::default());
        assert!(found.contains(&LostWrite::Job(JobId(5))));
        assert!(matches!(found[1], LostWrite::OtherAnswer { .. }));
    }

    #[test]
    fn two_answers_to_one_request_are_noticed() {
        let mut acknowledged = Acknowledged::default();
        acknowledged.submitted(RequestId(1), JobId(5));
        acknowledged.submitted(RequestId(1), JobId(5));
        assert_eq!(acknowledged.contradictions(), []);
        acknowledged.submitted(RequestId(1), JobId(6));
        acknowledged.unseen(JobId(6), 3);
        assert!(matches!(
            acknowledged.contradictions(),
            [
                LostWrite::TwoJobs { .. },
                LostWrite::Unseen { replica: 3, .. }
            ]
        ));
    }

    #[test]
    fn an_undone_cancel_and_a_job_too_many_are_noticed() {
        let mut cluster = Cluster::with_hosts(1, 2);
        let job = cluster.submit(single("kept", 1, 1));
        let mut acknowledged = Acknowledged::default();
        acknowledged.cancelled(job);
        let found = acknowledged.judge(&cluster.state);
        assert!(matches!(
            found.as_slice(),
            [
                LostWrite::TooMany {
                    requests: 0,
                    jobs: 1
                },
                LostWrite::Cancel { .. }
            ]
        ));
        acknowledged.asked(RequestId(1));
        assert_eq!(acknowledged.judge(&cluster.state).len(), 1);
    }
}
