//! Submission, reads, explanation and cancellation of jobs.

use muster_model::ids::{JobId, Revision};
use muster_proto::v1;

use crate::client::{Client, jobs, new_request_id};
use crate::error::ClientError;
use crate::submit_span::SubmitSpan;

/// Rows requested per page of a list: the most that a replica returns.
pub(crate) const PAGE_ROWS: u32 = 1_000;

/// Answer to a submission: a majority of the replicas has the job on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The job.
    pub job: JobId,
    /// Revision at which it was created.
    pub revision: Revision,
    /// Whether an earlier attempt of the same request had been accepted already.
    pub repeated: bool,
}

/// A job with its units.
#[derive(Clone, Debug, PartialEq)]
pub struct JobDetail {
    /// Revision of the state from which it was read.
    pub revision: Revision,
    /// The job.
    pub job: v1::Job,
    /// Its units that have a history, in index order, up to the requested number.
    pub units: Vec<v1::Unit>,
    /// Whether there are more units than requested.
    pub more_units: bool,
}

impl JobDetail {
    /// Phase of the job.
    #[must_use]
    pub fn phase(&self) -> v1::JobPhase {
        self.job.phase()
    }

    /// Whether the job is finished.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        is_finished(self.job.phase())
    }
}

/// Whether the phase is final.
pub(crate) fn is_finished(phase: v1::JobPhase) -> bool {
    matches!(
        phase,
        v1::JobPhase::Succeeded | v1::JobPhase::Failed | v1::JobPhase::Cancelled
    )
}

impl Client {
    /// Submits a job exactly once, with any number of attempts.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `INVALID_SPEC` (and its violations), `UNKNOWN_QUEUE` or
    /// `QUEUE_FULL`. After [`ClientError::DeadlineExceeded`] the job may exist: use
    /// [`Client::submit_job_as`] with a [`new_request_id`] to be able to repeat the request later.
    pub async fn submit_job(&self, spec: v1::JobSpec) -> Result<Submitted, ClientError> {
        self.submit_job_as(new_request_id(), spec).await
    }

    /// Submits a job under the caller's request id: within 24 hours the same id is the same job.
    ///
    /// # Errors
    /// As [`Client::submit_job`], and `REQUEST_REUSED` if the id was used for a different request.
    pub async fn submit_job_as(
        &self,
        request_id: impl Into<String>,
        spec: v1::JobSpec,
    ) -> Result<Submitted, ClientError> {
        self.send_submit(v1::SubmitJobRequest {
            request_id: request_id.into(),
            spec: Some(spec),
            validate_only: false,
        })
        .await
    }

    /// Validates a specification in the cluster; nothing is written.
    ///
    /// # Errors
    /// As [`Client::submit_job`].
    pub async fn validate_job(&self, spec: v1::JobSpec) -> Result<(), ClientError> {
        self.validate_job_as(new_request_id(), spec).await
    }

    /// As [`Client::validate_job`], for a submission under this request id: a request accepted under it
    /// before is valid, whatever has changed since.
    ///
    /// # Errors
    /// As [`Client::submit_job_as`].
    pub async fn validate_job_as(
        &self,
        request_id: impl Into<String>,
        spec: v1::JobSpec,
    ) -> Result<(), ClientError> {
        let request = v1::SubmitJobRequest {
            request_id: request_id.into(),
            spec: Some(spec),
            validate_only: true,
        };
        // Without a span: the submission's span has this request id.
        self.call(self.operation("submit the job"), |channel| {
            let request = request.clone();
            async move { jobs(channel).submit_job(request).await }
        })
        .await?;
        Ok(())
    }

    async fn send_submit(&self, request: v1::SubmitJobRequest) -> Result<Submitted, ClientError> {
        let operation = self.operation("submit the job");
        let span = &SubmitSpan::start(&request.request_id, self.config().traceparent.as_deref());
        let answer = self
            .call(operation, |channel| {
                let request = span.inject(request.clone());
                async move {
                    let answer = jobs(channel).submit_job(request).await;
                    answer.inspect(|answer| span.record_answer(answer))
                }
            })
            .await;
        span.end(answer.as_ref().map(|answer| answer.job_id));
        let answer = answer?;
        Ok(Submitted {
            job: JobId(answer.job_id),
            revision: Revision(answer.revision),
            repeated: answer.repeated,
        })
    }

    /// Reads a job and at most `units_max` of its units.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `UNKNOWN_JOB`.
    pub async fn get_job(
        &self,
        job: JobId,
        units_max: usize,
        consistency: v1::Consistency,
    ) -> Result<JobDetail, ClientError> {
        let mut detail: Option<JobDetail> = None;
        let mut page_token = String::new();
        loop {
            let have = detail.as_ref().map_or(0, |detail| detail.units.len());
            let page = self
                .get_job_page(job, units_max - have, page_token, consistency)
                .await?;
            let Some(head) = page.job else {
                return Err(ClientError::Malformed {
                    operation: "read the job",
                    detail: "it contains no job".to_owned(),
                });
            };
            let so_far = detail.take().map_or_else(Vec::new, |detail| detail.units);
            let units: Vec<v1::Unit> = so_far.into_iter().chain(page.units).collect();
            let more_units = !page.next_unit_page_token.is_empty();
            let read = JobDetail {
                revision: Revision(page.revision),
                job: head,
                units,
                more_units,
            };
            if !more_units || read.units.len() >= units_max {
                return Ok(read);
            }
            page_token = page.next_unit_page_token;
            detail = Some(read);
        }
    }

    /// Reads the progress reported by the running tasks of a job, as last received by the leader; at most
    /// 1,000 tasks.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `UNKNOWN_JOB`.
    pub async fn job_progress(&self, job: JobId) -> Result<Vec<v1::TaskProgress>, ClientError> {
        let request = v1::GetProgressRequest { job_id: job.get() };
        let answer = self
            .call(
                self.operation("read the job's progress"),
                |channel| async move { jobs(channel).get_progress(request).await },
            )
            .await?;
        Ok(answer.tasks)
    }

    async fn get_job_page(
        &self,
        job: JobId,
        units_max: usize,
        unit_page_token: String,
        consistency: v1::Consistency,
    ) -> Result<v1::GetJobResponse, ClientError> {
        let request = v1::GetJobRequest {
            job_id: job.get(),
            consistency: consistency.into(),
            unit_page_size: page_rows(units_max),
            unit_page_token,
            at_revision: self.at_revision(),
        };
        let operation = self.operation("read the job");
        let page = self
            .call(operation, |channel| {
                let request = request.clone();
                async move { jobs(channel).get_job(request).await }
            })
            .await?;
        self.check_revision(operation.name, page.revision)?;
        Ok(page)
    }

    /// Lists one page of the matching jobs, newest first.
    ///
    /// # Errors
    /// Those of a call.
    pub async fn list_jobs_page(
        &self,
        mut request: v1::ListJobsRequest,
    ) -> Result<v1::ListJobsResponse, ClientError> {
        request.at_revision = self.at_revision();
        let operation = self.operation("list jobs");
        let page = self
            .call(operation, |channel| {
                let request = request.clone();
                async move { jobs(channel).list_jobs(request).await }
            })
            .await?;
        self.check_revision(operation.name, page.revision)?;
        Ok(page)
    }

    /// Lists the newest `rows_max` matching jobs, with the revision of the first page.
    ///
    /// # Errors
    /// Those of a call.
    pub async fn list_jobs(
        &self,
        mut request: v1::ListJobsRequest,
        rows_max: usize,
    ) -> Result<(Revision, Vec<v1::Job>), ClientError> {
        let mut rows = Vec::new();
        let mut revision = None;
        loop {
            request.page_size = page_rows(rows_max - rows.len());
            let page = self.list_jobs_page(request.clone()).await?;
            let first = *revision.get_or_insert(Revision(page.revision));
            rows.extend(page.jobs);
            if page.next_page_token.is_empty() || rows.len() >= rows_max {
                rows.truncate(rows_max);
                return Ok((first, rows));
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Cancels a job; `author` and `reason` are recorded with it.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `UNKNOWN_JOB` or `JOB_FINISHED`.
    pub async fn cancel_job(
        &self,
        job: JobId,
        author: &str,
        reason: &str,
    ) -> Result<Revision, ClientError> {
        let request = v1::CancelJobRequest {
            request_id: new_request_id(),
            job_id: job.get(),
            author: author.to_owned(),
            reason: reason.to_owned(),
        };
        let answer = self
            .call(self.operation("cancel the job"), |channel| {
                let request = request.clone();
                async move { jobs(channel).cancel_job(request).await }
            })
            .await?;
        Ok(Revision(answer.revision))
    }

    /// Suspends a job; `author` and `reason` are recorded with it.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `UNKNOWN_JOB`, `JOB_FINISHED` or
    /// `SUSPENSION`.
    pub async fn suspend_job(
        &self,
        job: JobId,
        author: &str,
        reason: &str,
    ) -> Result<Revision, ClientError> {
        let request = v1::SuspendJobRequest {
            request_id: new_request_id(),
            job_id: job.get(),
            author: author.to_owned(),
            reason: reason.to_owned(),
        };
        let answer = self
            .call(self.operation("suspend the job"), |channel| {
                let request = request.clone();
                async move { jobs(channel).suspend_job(request).await }
            })
            .await?;
        Ok(Revision(answer.revision))
    }

    /// Resumes a suspended job; watchers receive `author` and `reason`.
    ///
    /// # Errors
    /// As [`Client::suspend_job`].
    pub async fn resume_job(
        &self,
        job: JobId,
        author: &str,
        reason: &str,
    ) -> Result<Revision, ClientError> {
        let request = v1::ResumeJobRequest {
            request_id: new_request_id(),
            job_id: job.get(),
            author: author.to_owned(),
            reason: reason.to_owned(),
        };
        let answer = self
            .call(self.operation("resume the job"), |channel| {
                let request = request.clone();
                async move { jobs(channel).resume_job(request).await }
            })
            .await?;
        Ok(Revision(answer.revision))
    }

    /// Explains why a job waits.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `UNKNOWN_JOB`.
    pub async fn explain_job(
        &self,
        job: JobId,
        consistency: v1::Consistency,
    ) -> Result<v1::ExplainJobResponse, ClientError> {
        let request = v1::ExplainJobRequest {
            job_id: job.get(),
            consistency: consistency.into(),
            at_revision: self.at_revision(),
        };
        let operation = self.operation("explain the job");
        let answer = self
            .call(operation, |channel| async move {
                jobs(channel).explain_job(request).await
            })
            .await?;
        self.check_revision(operation.name, answer.revision)?;
        Ok(answer)
    }
}

/// Rows to request when `wanted` more are needed; at least 1, because 0 means the server's choice.
pub(crate) fn page_rows(wanted: usize) -> u32 {
    u32::try_from(wanted)
        .unwrap_or(PAGE_ROWS)
        .clamp(1, PAGE_ROWS)
}
