//! History of the users' calls and answers, in the terms of Jepsen: a refused call had no effect; an
//! unanswered one may take effect at any later time.

use std::sync::{Mutex, PoisonError};

use muster_client::{Client, ClientError, JobDetail, Submitted};
use muster_model::ids::{JobId, RequestId, Revision};
use muster_model::lifecycle::JobPhase;
use muster_proto::v1;
use serde::Serialize;

use crate::run::clock::now_us;

/// A call of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Call {
    /// Submits a job under this request id.
    Submit(RequestId),
    /// Cancels a job.
    Cancel(JobId),
    /// Reads a job, linearizably.
    Read(JobId),
}

/// Outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// It took effect and returned this answer.
    Done(Answer),
    /// It was refused for this reason, and had no effect.
    Refused(String),
    /// The outcome is unknown.
    Unknown(String),
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Answer {
    /// The job.
    pub(super) job: JobId,
    /// Revision of the answer.
    pub(super) revision: Revision,
    /// Phase of the job, for a read.
    pub(super) phase: Option<JobPhase>,
}

impl From<Submitted> for Answer {
    fn from(submitted: Submitted) -> Self {
        Self {
            job: submitted.job,
            revision: submitted.revision,
            phase: None,
        }
    }
}

impl Answer {
    /// Answer of a read of a job.
    fn of_read(job: JobId, detail: &JobDetail) -> Self {
        Self {
            job,
            revision: detail.revision,
            phase: JobPhase::try_from(detail.job.phase()).ok(),
        }
    }
}

/// A call with its start and end, by the clock of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Operation {
    /// Number of the user.
    pub(super) user: u32,
    /// The call.
    pub(super) call: Call,
    /// Time before the call, in microseconds.
    pub(super) invoked_us: u64,
    /// Time after its answer, in microseconds.
    pub(super) completed_us: u64,
    /// Replica that answered, refused, or explained why it could do neither, as `host:port`.
    pub(super) via: Option<String>,
    /// Its outcome.
    pub(super) outcome: Outcome,
}

impl Operation {
    /// The answer, if there was one.
    pub(super) fn answer(&self) -> Option<Answer> {
        match self.outcome {
            Outcome::Done(answer) => Some(answer),
            _ => None,
        }
    }

    /// Whether it certainly changed something.
    pub(super) fn is_write(&self) -> bool {
        self.answer().is_some() && !matches!(self.call, Call::Read(_))
    }
}

/// Last replica that responded to a call without an answer in time.
fn last_word(answer: &Result<Answer, ClientError>) -> Option<String> {
    let Err(ClientError::DeadlineExceeded { tried, .. }) = answer else {
        return None;
    };
    let responded = tried.iter().rev().find(|it| it.is_answer);
    responded.map(|it| it.address.clone())
}

/// All calls so far, shared by all users.
#[derive(Debug, Default)]
pub(super) struct History {
    operations: Mutex<Vec<Operation>>,
}

impl History {
    /// Submits a job under a request id, through a client without other calls in flight.
    ///
    /// # Errors
    /// Those of the call. The outcome is recorded in any case.
    pub(super) async fn submit(
        &self,
        user: u32,
        client: &Client,
        request: RequestId,
        spec: v1::JobSpec,
    ) -> Result<Answer, ClientError> {
        let submitted = async {
            let submitted = client.submit_job_as(request.to_string(), spec).await?;
            Ok(Answer::from(submitted))
        };
        self.record(user, client, Call::Submit(request), submitted)
            .await
    }

    /// Cancels a job; see [`History::submit`].
    ///
    /// # Errors
    /// Those of the call.
    pub(super) async fn cancel(
        &self,
        user: u32,
        client: &Client,
        job: JobId,
        author: &str,
    ) -> Result<Answer, ClientError> {
        let cancelled = async {
            let revision = client.cancel_job(job, author, "").await?;
            Ok(Answer {
                job,
                revision,
                phase: None,
            })
        };
        self.record(user, client, Call::Cancel(job), cancelled)
            .await
    }

    /// Reads a job linearizably; see [`History::submit`].
    ///
    /// # Errors
    /// Those of the call.
    pub(super) async fn read(
        &self,
        user: u32,
        client: &Client,
        job: JobId,
    ) -> Result<Answer, ClientError> {
        let consistency = v1::Consistency::Linearizable;
        let read = async {
            let detail = client.get_job(job, 1, consistency).await?;
            Ok(Answer::of_read(job, &detail))
        };
        self.record(user, client, Call::Read(job), read).await
    }

    /// Makes a call and records its outcome.
    async fn record(
        &self,
        user: u32,
        client: &Client,
        call: Call,
        answered: impl Future<Output = Result<Answer, ClientError>>,
    ) -> Result<Answer, ClientError> {
        let invoked_us = now_us();
        let answer = answered.await;
        let outcome = match &answer {
            Ok(answer) => Outcome::Done(*answer),
            Err(ClientError::Refused { refusal, .. }) => Outcome::Refused(refusal.reason.clone()),
            Err(error) => Outcome::Unknown(error.to_string()),
        };
        let operation = Operation {
            user,
            call,
            invoked_us,
            completed_us: now_us(),
            via: client.answered_by().or_else(|| last_word(&answer)),
            outcome,
        };
        self.lock().push(operation);
        answer
    }

    /// Number of calls answered between two times.
    pub(super) fn answered_between(&self, from_us: u64, to_us: u64) -> usize {
        let operations = self.lock();
        let within = operations
            .iter()
            .filter(|it| (from_us..to_us).contains(&it.completed_us));
        within.filter(|it| it.answer().is_some()).count()
    }

    /// All calls, in the order of their completion.
    pub(super) fn operations(&self) -> Vec<Operation> {
        let mut operations = self.lock().clone();
        operations.sort_by_key(|it| it.completed_us);
        operations
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Operation>> {
        // A list is consistent after every push.
        self.operations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
