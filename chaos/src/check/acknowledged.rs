//! I4 and I5: what was acknowledged exists, once, under the id that was answered.

use std::collections::BTreeMap;

use muster_core::ids::{JobId, PipelineId, RequestId};
use muster_core::lifecycle::JobPhase;
use muster_core::state::{Answer, State};

/// Submissions and cancels that a client was told about.
#[derive(Clone, Debug, Default)]
pub struct Acknowledged {
    /// How many jobs each request is for.
    asked: BTreeMap<RequestId, u64>,
    jobs: BTreeMap<RequestId, JobId>,
    pipelines: BTreeMap<RequestId, PipelineId>,
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
    /// I5: one request was answered twice, differently.
    #[error("request {request} was answered with pipeline {first} and with pipeline {second}")]
    TwoPipelines {
        /// Which request.
        request: RequestId,
        /// First answer.
        first: PipelineId,
        /// Second answer.
        second: PipelineId,
    },
    /// I5: the state holds another answer than the client got.
    #[error("request {request} was answered with {told:?}, the state says {kept:?}")]
    OtherAnswer {
        /// Which request.
        request: RequestId,
        /// What the client was told.
        told: Answer,
        /// What the state holds.
        kept: Option<Answer>,
    },
    /// I5: requests were carried out more than once.
    #[error("requests for {asked} jobs made {jobs}")]
    TooMany {
        /// Jobs of submissions that were ever sent, answered or not.
        asked: u64,
        /// Jobs in the state.
        jobs: u64,
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
        self.asked.insert(request, 1);
    }

    /// A client is about to send the submission of a pipeline with so many jobs.
    pub fn asked_pipeline(&mut self, request: RequestId, jobs: u64) {
        self.asked.insert(request, jobs);
    }

    /// A client got this answer to the submission of a pipeline.
    pub fn submitted_pipeline(&mut self, request: RequestId, pipeline: PipelineId) {
        if let Some(first) = self.pipelines.insert(request, pipeline)
            && first != pipeline
        {
            self.contradictions.push(LostWrite::TwoPipelines {
                request,
                first,
                second: pipeline,
            });
        }
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
        self.jobs.len() + self.pipelines.len()
    }

    /// True if nothing was acknowledged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The acknowledged jobs, those of pipelines included: these have the numbers after their pipeline's.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        let of_pipeline = |(request, pipeline): (&RequestId, &PipelineId)| {
            let count = self.asked.get(request).copied().unwrap_or(0);
            let first = pipeline.get() + 1;
            (first..first + count).map(JobId)
        };
        let in_pipelines = self.pipelines.iter().flat_map(of_pipeline);
        self.jobs.values().copied().chain(in_pipelines)
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
        let (asked, jobs) = (self.asked.values().sum(), state.jobs.len() as u64);
        if jobs > asked {
            found.push(LostWrite::TooMany { asked, jobs });
        }
        let gone = self.jobs().filter(|job| state.job(*job).is_none());
        found.extend(gone.map(LostWrite::Job));
        let told_jobs = self.jobs.iter().map(|(at, job)| (*at, Answer::Job(*job)));
        let pipelines = self.pipelines.iter();
        let told_pipelines = pipelines.map(|(at, id)| (*at, Answer::Pipeline(*id)));
        for (request, told) in told_jobs.chain(told_pipelines) {
            let stored = state.requests.get(request);
            let kept = stored.map(|stored| stored.answer.clone());
            if kept.as_ref() != Some(&told) {
                found.push(LostWrite::OtherAnswer {
                    request,
                    told,
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
    fn a_pipeline_of_which_a_job_is_missing_is_lost() {
        let mut acknowledged = Acknowledged::default();
        acknowledged.asked_pipeline(RequestId(1), 2);
        acknowledged.submitted_pipeline(RequestId(1), PipelineId(5));
        assert_eq!(
            acknowledged.jobs().collect::<Vec<_>>(),
            [JobId(6), JobId(7)]
        );
        let found = acknowledged.judge(&State::default());
        assert_eq!(
            found[..2],
            [LostWrite::Job(JobId(6)), LostWrite::Job(JobId(7))]
        );
        assert!(matches!(found[2], LostWrite::OtherAnswer { .. }));
        acknowledged.submitted_pipeline(RequestId(1), PipelineId(9));
        assert!(matches!(
            acknowledged.contradictions(),
            [LostWrite::TwoPipelines { .. }]
        ));
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
                LostWrite::TooMany { asked: 0, jobs: 1 },
                LostWrite::Cancel { .. }
            ]
        ));
        acknowledged.asked(RequestId(1));
        assert_eq!(acknowledged.judge(&cluster.state).len(), 1);
    }
}
