//! What users called and were told, in the terms of Jepsen: a call that was refused did nothing; one without an answer may
//! take effect at any later time.

use std::sync::{Mutex, PoisonError};

use muster_client::{Client, ClientError, JobDetail, Submitted};
use muster_model::ids::{JobId, RequestId, Revision};
use muster_model::lifecycle::JobPhase;
use muster_proto::v1;
use serde::Serialize;

use crate::run::clock::now_us;

/// What a user called.
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

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    /// It took effect, and this was the answer.
    Done(Answer),
    /// It was refused for this reason, and did nothing.
    Refused(String),
    /// Nobody knows.
    Unknown(String),
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Answer {
    /// The job that it is about.
    pub(super) job: JobId,
    /// Revision at which it was true.
    pub(super) revision: Revision,
    /// Where a job that was read stood.
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
    /// What a read of a job told.
    fn of_read(job: JobId, detail: &JobDetail) -> Self {
        Self {
            job,
            revision: detail.revision,
            phase: JobPhase::try_from(detail.job.phase()).ok(),
        }
    }
}

/// A call with its beginning and its end, by the clock of the run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Operation {
    /// Which user.
    pub(super) user: u32,
    /// What was called.
    pub(super) call: Call,
    /// Before the call, in microseconds.
    pub(super) invoked_us: u64,
    /// After its answer, in microseconds.
    pub(super) completed_us: u64,
    /// The replica that answered, refused, or said why it could do neither, as `host:port`.
    pub(super) via: Option<String>,
    /// What came of it.
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

    /// Whether it changed something, for certain.
    pub(super) fn is_write(&self) -> bool {
        self.answer().is_some() && !matches!(self.call, Call::Read(_))
    }
}

/// The last replica that said something of a call that came to nothing in time.
fn last_word(answer: &Result<Answer, ClientError>) -> Option<String> {
    let Err(ClientError::DeadlineExceeded { tried, .. }) = answer else {
        return None;
    };
    let told = tried.iter().rev().find(|it| it.is_answer);
    told.map(|it| it.address.clone())
}

/// All calls so far, shared by all users.
#[derive(Debug, Default)]
pub(super) struct History {
    operations: Mutex<Vec<Operation>>,
}

impl History {
    /// Submits a job under a request id, through a client that calls nothing else meanwhile.
    ///
    /// # Errors
    /// Those of the call. What came of it is noted in any case.
    pub(super) async fn submit(
        &self,
        (user, client): (u32, &Client),
        request: RequestId,
        spec: v1::JobSpec,
    ) -> Result<Answer, ClientError> {
        let submitted = async {
            let submitted = client.submit_job_as(request.to_string(), spec).await?;
            Ok(Answer::from(submitted))
        };
        self.note((user, client), Call::Submit(request), submitted)
            .await
    }

    /// Cancels a job, as [`History::submit`] submits one.
    ///
    /// # Errors
    /// Those of the call.
    pub(super) async fn cancel(
        &self,
        (user, client): (u32, &Client),
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
        self.note((user, client), Call::Cancel(job), cancelled)
            .await
    }

    /// Reads a job linearizably, as [`History::submit`] submits one.
    ///
    /// # Errors
    /// Those of the call.
    pub(super) async fn read(
        &self,
        (user, client): (u32, &Client),
        job: JobId,
    ) -> Result<Answer, ClientError> {
        let consistency = v1::Consistency::Linearizable;
        let read = async {
            let detail = client.get_job(job, 1, consistency).await?;
            Ok(Answer::of_read(job, &detail))
        };
        self.note((user, client), Call::Read(job), read).await
    }

    /// Makes a call and notes what comes of it.
    async fn note(
        &self,
        (user, client): (u32, &Client),
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

    /// Calls that were answered from one time to another.
    pub(super) fn answered_between(&self, from_us: u64, to_us: u64) -> usize {
        let operations = self.lock();
        let within = operations
            .iter()
            .filter(|it| (from_us..to_us).contains(&it.completed_us));
        within.filter(|it| it.answer().is_some()).count()
    }

    /// Everything that was called, in the order of the answers.
    pub(super) fn operations(&self) -> Vec<Operation> {
        let mut operations = self.lock().clone();
        operations.sort_by_key(|it| it.completed_us);
        operations
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Operation>> {
        // A list is whole after every push.
        self.operations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
