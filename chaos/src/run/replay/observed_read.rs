//! Observed reads: answers to users, compared with the state at their revision.

use muster_engine::state::{Answer, State};
use muster_model::ids::{JobId, RequestId, Revision};
use muster_model::lifecycle::JobPhase;

use crate::run::history::{Call, Operation};

/// An observation about a job at a revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::run) struct Observation {
    /// The revision.
    pub(in crate::run) revision: Revision,
    /// The job.
    pub(in crate::run) job: JobId,
    /// The observation.
    pub(in crate::run) seen: ObservedFact,
}

/// Observation about a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::run) enum ObservedFact {
    /// It was read with this phase.
    Phase(Option<JobPhase>),
    /// It is the answer to this request.
    Submitted(RequestId),
    /// Its cancellation was acknowledged.
    Cancelled,
}

impl Observation {
    /// The observation in the answer to a call, if it was answered.
    pub(in crate::run) fn of(operation: &Operation) -> Option<Self> {
        let answer = operation.answer()?;
        let seen = match operation.call {
            Call::Read(_) => ObservedFact::Phase(answer.phase),
            Call::Submit(request) => ObservedFact::Submitted(request),
            Call::Cancel(_) => ObservedFact::Cancelled,
        };
        Some(Self {
            revision: answer.revision,
            job: answer.job,
            seen,
        })
    }

    /// Whether it comes from a read, not from a write.
    pub(super) const fn is_read(&self) -> bool {
        matches!(self.seen, ObservedFact::Phase(_))
    }

    /// Describes the contradiction to the state at its revision, if any.
    pub(super) fn contradiction(&self, state: &State) -> Option<String> {
        let Self {
            revision,
            job: id,
            seen,
        } = *self;
        let job = state.job(id);
        match seen {
            ObservedFact::Phase(phase) => {
                let there = job.map(|job| job.phase);
                (there != phase).then(|| {
                    format!(
                        "job {id} was read at revision {revision} as {phase:?}, but it was {there:?}"
                    )
                })
            }
            ObservedFact::Submitted(request) => {
                let kept = state.requests.get(request).map(|kept| &kept.answer);
                let is_there = job.is_some() && kept == Some(&Answer::Job(id));
                (!is_there).then(|| {
                    format!(
                        "request {request} was answered with job {id} at revision {revision}, but the log says {kept:?}"
                    )
                })
            }
            ObservedFact::Cancelled => {
                let is_cancelled = job.is_some_and(|job| job.cancel.is_some());
                (!is_cancelled).then(|| {
                    format!(
                        "job {id} was cancelled at revision {revision}, but the log does not contain it"
                    )
                })
            }
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_harness::{Cluster, single};

    use super::*;

    #[test]
    fn writes_must_have_taken_effect_by_the_revision_that_they_were_answered_with() {
        let mut cluster = Cluster::with_hosts(1, 2);
        let before = cluster.state.clone();
        let job = cluster.submit(single("one", 1, 1));
        let (request, _) = cluster.state.requests.iter().next().unwrap();
        let sight = |job, seen| Observation {
            revision: cluster.state.revision,
            job,
            seen,
        };
        let submitted = sight(job, ObservedFact::Submitted(request));
        assert_eq!(submitted.contradiction(&cluster.state), None);
        // Too early, another job, another request.
        assert!(submitted.contradiction(&before).is_some());
        let other = sight(JobId(job.get() + 1), ObservedFact::Submitted(request));
        assert!(other.contradiction(&cluster.state).is_some());
        let unknown = sight(job, ObservedFact::Submitted(RequestId(request.0 + 1)));
        assert!(unknown.contradiction(&cluster.state).is_some());
        // It was not cancelled.
        let cancelled = sight(job, ObservedFact::Cancelled);
        assert!(cancelled.contradiction(&cluster.state).is_some());
    }
}
