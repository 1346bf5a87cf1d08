//! Checker for I4 and I5: every acknowledged write exists, exactly once, under the id in its answer.

use std::collections::{BTreeMap, BTreeSet};

use muster_engine::state::{Answer, State};
use muster_model::ids::{JobId, PipelineId, RequestId};
use muster_model::lifecycle::JobPhase;
use muster_model::limits::REQUEST_KEPT_MS;

/// Acknowledged submissions and cancels, as clients received them.
#[derive(Clone, Debug, Default)]
pub struct AcknowledgedWrites {
    /// Number of jobs that each request submits.
    asked: BTreeMap<RequestId, u64>,
    jobs: BTreeMap<RequestId, JobId>,
    pipelines: BTreeMap<RequestId, PipelineId>,
    cancels: Vec<JobId>,
    /// Acknowledged jobs that were lost together with all replicas.
    forgotten: BTreeSet<JobId>,
    refused: BTreeSet<RequestId>,
    contradictions: Vec<LostWrite>,
}

/// An acknowledgement that the state contradicts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LostWrite {
    /// I4: the job does not exist.
    #[error("job {0} was acknowledged and is gone")]
    Job(JobId),
    /// I5: one request got two different answers.
    #[error("request {request} was answered with job {first} and with job {second}")]
    TwoJobs {
        /// The request.
        request: RequestId,
        /// First job in an answer.
        first: JobId,
        /// Second job in an answer.
        second: JobId,
    },
    /// I4: the cancel had no lasting effect.
    #[error("job {job} was cancelled and is {phase:?}")]
    Cancel {
        /// The cancelled job.
        job: JobId,
        /// Its phase in the state.
        phase: JobPhase,
    },
    /// I5: one request got two different answers.
    #[error("request {request} was answered with pipeline {first} and with pipeline {second}")]
    TwoPipelines {
        /// The request.
        request: RequestId,
        /// First pipeline in an answer.
        first: PipelineId,
        /// Second pipeline in an answer.
        second: PipelineId,
    },
    /// I5: the stored answer differs from the one that the client received.
    #[error("client got {:?} for request {request}, but the state holds {stored:?}", .received)]
    OtherAnswer {
        /// The request.
        request: RequestId,
        /// Answer that the client received.
        received: Answer,
        /// Answer in the state.
        stored: Option<Answer>,
    },
    /// I5: a job that no request accounts for, such as a second execution of a request.
    #[error("job {0} is not the answer to any request")]
    Unrequested(JobId),
    /// I5: a submission was applied under a request id that no client sent.
    #[error("no client sent request {request}, but the state answers it with {stored:?}")]
    Unsent {
        /// The request.
        request: RequestId,
        /// Answer in the state.
        stored: Answer,
    },
    /// I5: two requests are answered with the same job.
    #[error("job {job} is the answer to request {first} and to request {second}")]
    Shared {
        /// The shared job.
        job: JobId,
        /// First of the two requests.
        first: RequestId,
        /// Second of the two requests.
        second: RequestId,
    },
    /// I5: a refused request took effect.
    #[error("request {request} was refused, but the state answers it with {stored:?}")]
    Refused {
        /// The request.
        request: RequestId,
        /// Answer in the state.
        stored: Answer,
    },
    /// I9: a linearizable read after the acknowledgement did not return the job.
    #[error(
        "job {job} was acknowledged, but a later linearizable read on replica {replica} does not return it"
    )]
    Unseen {
        /// The acknowledged job.
        job: JobId,
        /// The replica that served the read.
        replica: u32,
    },
}

impl AcknowledgedWrites {
    /// Records that a client is about to send a submission.
    pub fn asked(&mut self, request: RequestId) {
        self.asked.insert(request, 1);
    }

    /// Records that a client is about to submit a pipeline of `jobs` jobs.
    pub fn asked_pipeline(&mut self, request: RequestId, jobs: u64) {
        self.asked.insert(request, jobs);
    }

    /// Merges the requests sent until `later`: a state may contain them, although answers received in
    /// between do not count.
    pub fn learn_asked(&mut self, later: &Self) {
        self.asked.extend(&later.asked);
    }

    /// Records the answer to the submission of a pipeline.
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

    /// Records that a linearizable read on a replica did not return an acknowledged job.
    pub fn unseen(&mut self, job: JobId, replica: u32) {
        if !self.forgotten.contains(&job) {
            self.contradictions.push(LostWrite::Unseen { job, replica });
        }
    }

    /// Records the answer to a submission.
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

    /// Records that a submission was refused without effect. Call it only for requests without a concurrent
    /// duplicate: of two concurrent ones, one may be refused although the other takes effect.
    pub fn refused(&mut self, request: RequestId) {
        self.refused.insert(request);
    }

    /// Records that a cancel was acknowledged.
    pub fn cancelled(&mut self, job: JobId) {
        self.cancels.push(job);
    }

    /// All replicas are lost and a new group continues from this state of theirs: writes acknowledged later
    /// are gone.
    pub fn goes_back(&mut self, state: &State) {
        let all: BTreeSet<JobId> = self.jobs().collect();
        let is_known = |job: &JobId| state.job(*job).is_some();
        self.forgotten
            .extend(all.into_iter().filter(|job| !is_known(job)));
        self.jobs.retain(|_, job| is_known(job));
        self.pipelines
            .retain(|_, pipeline| is_known(&JobId(pipeline.get() + 1)));
        self.cancels
            .retain(|job| state.job(*job).is_some_and(|known| known.cancel.is_some()));
    }

    /// Number of acknowledged submissions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs.len() + self.pipelines.len()
    }

    /// Whether nothing was acknowledged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Acknowledged jobs, including those of pipelines, whose ids follow their pipeline's id.
    pub fn jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        let of_pipeline = |(request, pipeline): (&RequestId, &PipelineId)| {
            let count = self.asked.get(request).copied().unwrap_or(0);
            let first = pipeline.get() + 1;
            (first..first + count).map(JobId)
        };
        let in_pipelines = self.pipelines.iter().flat_map(of_pipeline);
        self.jobs.values().copied().chain(in_pipelines)
    }

    /// Contradictory answers and failed reads after an acknowledgement, in the order recorded.
    #[must_use]
    pub fn contradictions(&self) -> &[LostWrite] {
        &self.contradictions
    }

    /// Returns all acknowledgements that `state` contradicts.
    #[must_use]
    pub fn judge(&self, state: &State) -> Vec<LostWrite> {
        let mut found = once_each(state);
        found.extend(self.unsent(state));
        let gone = self.jobs().filter(|job| state.job(*job).is_none());
        found.extend(gone.map(LostWrite::Job));
        found.extend(self.other_answers(state));
        let refused = self.refused.iter().filter_map(|request| {
            let stored = state.requests.get(*request)?.answer.clone();
            let request = *request;
            Some(LostWrite::Refused { request, stored })
        });
        found.extend(refused);
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

    /// Returns submissions in the state that no client sent: only users submit, and each request is
    /// recorded before it is sent.
    fn unsent(&self, state: &State) -> Vec<LostWrite> {
        let carried_out = state.requests.iter();
        let submissions = carried_out
            .filter(|(_, stored)| matches!(stored.answer, Answer::Job(_) | Answer::Pipeline(_)));
        let unsent = submissions.filter(|(request, _)| !self.asked.contains_key(request));
        unsent
            .map(|(request, stored)| LostWrite::Unsent {
                request,
                stored: stored.answer.clone(),
            })
            .collect()
    }

    /// Returns requests whose answer in the state differs from the client's, or is missing although still
    /// within retention.
    fn other_answers(&self, state: &State) -> Vec<LostWrite> {
        let received_jobs = self.jobs.iter().map(|(at, job)| (*at, Answer::Job(*job)));
        let pipelines = self.pipelines.iter();
        let received_pipelines = pipelines.map(|(at, id)| (*at, Answer::Pipeline(*id)));
        let other = received_jobs
            .chain(received_pipelines)
            .filter_map(|(request, received)| {
                let stored = state.requests.get(request);
                let answer = stored.map(|stored| stored.answer.clone());
                let is_forgotten = answer.is_none() && is_old(state, &received);
                (answer.as_ref() != Some(&received) && !is_forgotten).then_some(
                    LostWrite::OtherAnswer {
                        request,
                        received,
                        stored: answer,
                    },
                )
            });
        other.collect()
    }
}

/// Whether a job, or the first job of a pipeline, was submitted before the retention period of answers.
fn is_old(state: &State, answer: &Answer) -> bool {
    let job = match answer {
        Answer::Job(job) => Some(*job),
        Answer::Pipeline(pipeline) => Some(JobId(pipeline.get() + 1)),
        _ => None,
    };
    let submitted = job.and_then(|job| Some(state.job(job)?.submitted_at));
    submitted.is_some_and(|at| at.0 < kept_from(state))
}

/// Start of the retention period: answers to earlier requests may be forgotten.
const fn kept_from(state: &State) -> u64 {
    state.time.0.saturating_sub(REQUEST_KEPT_MS)
}

/// Returns jobs that are not the answer to exactly one request. Answers are kept for [`REQUEST_KEPT_MS`],
/// so older jobs are not checked.
fn once_each(state: &State) -> Vec<LostWrite> {
    let mut found = Vec::new();
    let mut asked: BTreeMap<JobId, RequestId> = BTreeMap::new();
    for (request, stored) in state.requests.iter() {
        let jobs: Vec<JobId> = match &stored.answer {
            Answer::Job(job) => vec![*job],
            Answer::Pipeline(pipeline) => state.jobs_of(*pipeline).map(|job| job.id).collect(),
            _ => Vec::new(),
        };
        for job in jobs {
            if let Some(first) = asked.insert(job, request) {
                let second = request;
                found.push(LostWrite::Shared { job, first, second });
            }
        }
    }
    let judged = state
        .jobs
        .values()
        .filter(|job| job.submitted_at.0 >= kept_from(state));
    let unasked = judged.filter(|job| !asked.contains_key(&job.id));
    found.extend(unasked.map(|job| LostWrite::Unrequested(job.id)));
    found
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_harness::{Cluster, single};
    use muster_model::time::TimeMs;

    use super::*;

    /// A checker in which every request of `state` was sent by a client.
    fn asked_for(state: &State) -> AcknowledgedWrites {
        let mut acknowledged = AcknowledgedWrites::default();
        for (request, _) in state.requests.iter() {
            acknowledged.asked(request);
        }
        acknowledged
    }

    #[test]
    fn a_job_that_the_state_does_not_know_is_lost() {
        let mut acknowledged = AcknowledgedWrites::default();
        acknowledged.asked(RequestId(1));
        acknowledged.submitted(RequestId(1), JobId(5));
        let found = acknowledged.judge(&State::default());
        assert!(found.contains(&LostWrite::Job(JobId(5))));
        assert!(matches!(found[1], LostWrite::OtherAnswer { .. }));
    }

    #[test]
    fn a_pipeline_of_which_a_job_is_missing_is_lost() {
        let mut acknowledged = AcknowledgedWrites::default();
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
    fn an_answer_is_missed_as_long_as_it_must_be_kept() {
        let mut cluster = Cluster::with_hosts(1, 2);
        let job = cluster.submit(single("long", 1, 1));
        let request = { cluster.state.requests.iter() }
            .find(|(_, stored)| stored.answer == Answer::Job(job))
            .map(|(request, _)| request)
            .unwrap();
        let mut acknowledged = AcknowledgedWrites::default();
        acknowledged.asked(request);
        acknowledged.submitted(request, job);
        assert_eq!(acknowledged.judge(&cluster.state), []);
        let mut later = cluster.state.clone();
        later.requests.prune(TimeMs(u64::MAX), usize::MAX);
        assert!(!acknowledged.judge(&later).is_empty(), "too early");
        later.time = later.time.after(REQUEST_KEPT_MS + 1);
        assert_eq!(acknowledged.judge(&later), []);
    }

    #[test]
    fn two_answers_to_one_request_are_noticed() {
        let mut acknowledged = AcknowledgedWrites::default();
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
    fn an_undone_cancel_is_noticed() {
        let mut cluster = Cluster::with_hosts(1, 2);
        let job = cluster.submit(single("kept", 1, 1));
        let mut acknowledged = asked_for(&cluster.state);
        assert_eq!(acknowledged.judge(&cluster.state), []);
        acknowledged.cancelled(job);
        let found = acknowledged.judge(&cluster.state);
        assert!(matches!(found.as_slice(), [LostWrite::Cancel { .. }]));
    }

    #[test]
    fn jobs_after_the_backup_may_be_missing_and_earlier_ones_not() {
        let mut cluster = Cluster::with_hosts(1, 2);
        let known = cluster.submit(single("known", 1, 1));
        let backup = cluster.state.clone();
        let later = cluster.submit(single("later", 1, 1));
        let mut acknowledged = asked_for(&cluster.state);
        for (request, stored) in cluster.state.requests.iter() {
            if let Answer::Job(job) = stored.answer {
                acknowledged.submitted(request, job);
            }
        }
        acknowledged.cancelled(known);
        acknowledged.cancelled(later);
        assert_eq!(acknowledged.judge(&backup).len(), 3);
        acknowledged.goes_back(&backup);
        assert_eq!(acknowledged.judge(&backup), []);
        acknowledged.unseen(later, 1);
        assert_eq!(acknowledged.contradictions(), []);
        acknowledged.unseen(known, 1);
        assert_eq!(acknowledged.contradictions().len(), 1);
        assert!(!acknowledged.judge(&State::default()).is_empty());
    }

    /// Refused and unanswered requests never account for a second job, however many there are.
    #[test]
    fn every_job_is_the_answer_to_exactly_one_request() {
        let mut cluster = Cluster::with_hosts(1, 2);
        let (first, second) = (
            cluster.submit(single("first", 1, 1)),
            cluster.submit(single("second", 1, 1)),
        );
        let mut acknowledged = asked_for(&cluster.state);
        (1_000..1_009).for_each(|request| acknowledged.asked(RequestId(request)));
        assert_eq!(acknowledged.judge(&cluster.state), []);
        let of_second = cluster.state.requests.iter().find_map(|(request, stored)| {
            (stored.answer == Answer::Job(second)).then(|| (request, stored.clone()))
        });
        let (request, mut stored) = of_second.unwrap();
        // The request was applied twice and is answered with the first job.
        stored.answer = Answer::Job(first);
        cluster.state.requests.insert(request, stored);
        let found = acknowledged.judge(&cluster.state);
        assert!(matches!(
            found.as_slice(),
            [LostWrite::Shared { .. }, LostWrite::Unrequested(job)] if *job == second
        ));
    }

    /// The job is the answer to exactly one request, but no client sent that request.
    #[test]
    fn a_job_that_was_doubled_under_another_request_is_noticed() {
        let mut cluster = Cluster::with_hosts(1, 2);
        cluster.submit(single("once", 1, 1));
        let mut acknowledged = asked_for(&cluster.state);
        let doubled = cluster.submit(single("once", 1, 1));
        let found = acknowledged.judge(&cluster.state);
        assert!(matches!(
            found.as_slice(),
            [LostWrite::Unsent { stored: Answer::Job(job), .. }] if *job == doubled
        ));
        // Another client sent it after the answers were recorded.
        acknowledged.learn_asked(&asked_for(&cluster.state));
        assert_eq!(acknowledged.judge(&cluster.state), []);
    }

    #[test]
    fn a_refused_submission_has_no_effect() {
        let mut cluster = Cluster::with_hosts(1, 2);
        cluster.submit(single("kept", 1, 1));
        let (request, _) = cluster.state.requests.iter().next().unwrap();
        let mut acknowledged = asked_for(&cluster.state);
        acknowledged.refused(RequestId(99));
        assert_eq!(acknowledged.judge(&cluster.state), []);
        acknowledged.refused(request);
        let found = acknowledged.judge(&cluster.state);
        assert!(matches!(found.as_slice(), [LostWrite::Refused { .. }]));
    }
}
