//! Submission, reads and cancellation of pipelines.

use muster_model::ids::{JobId, PipelineId, Revision};
use muster_proto::v1;

use crate::client::{Client, jobs, new_request_id};
use crate::error::ClientError;
use crate::requests::jobs::{is_finished, page_rows};

/// Answer to a pipeline's submission: a majority of the replicas has all of its jobs on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubmittedPipeline {
    /// The pipeline.
    pub pipeline: PipelineId,
    /// Its jobs, in the order of the specification.
    pub jobs: Vec<JobId>,
    /// Revision at which they were created.
    pub revision: Revision,
    /// Whether an earlier attempt of the same request had been accepted already.
    pub repeated: bool,
}

/// A pipeline with its jobs.
#[derive(Clone, Debug, PartialEq)]
pub struct PipelineDetail {
    /// Revision of the state from which it was read.
    pub revision: Revision,
    /// The pipeline.
    pub pipeline: v1::Pipeline,
    /// Its jobs that are not forgotten, in the order of the pipeline.
    pub jobs: Vec<v1::Job>,
}

impl PipelineDetail {
    /// Whether all of its jobs are finished.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        is_finished(self.pipeline.phase())
    }
}

impl Client {
    /// Submits a pipeline exactly once and as a whole, with any number of attempts, under the caller's
    /// request id: within 24 hours the same id is the same pipeline.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `INVALID_SPEC` (and its violations), `UNKNOWN_QUEUE`,
    /// `QUEUE_FULL` or `REQUEST_REUSED`.
    pub async fn submit_pipeline(
        &self,
        request_id: Option<String>,
        spec: v1::PipelineSpec,
    ) -> Result<SubmittedPipeline, ClientError> {
        let answer = self.send_pipeline(request_id, spec, false).await?;
        Ok(SubmittedPipeline {
            pipeline: PipelineId(answer.pipeline_id),
            jobs: answer.job_ids.into_iter().map(JobId).collect(),
            revision: Revision(answer.revision),
            repeated: answer.repeated,
        })
    }

    /// Validates a pipeline in the cluster; nothing is written.
    ///
    /// # Errors
    /// As [`Client::submit_pipeline`].
    pub async fn validate_pipeline(&self, spec: v1::PipelineSpec) -> Result<(), ClientError> {
        self.send_pipeline(None, spec, true).await.map(|_| ())
    }

    async fn send_pipeline(
        &self,
        request_id: Option<String>,
        spec: v1::PipelineSpec,
        validate_only: bool,
    ) -> Result<v1::SubmitPipelineResponse, ClientError> {
        let request = v1::SubmitPipelineRequest {
            request_id: request_id.unwrap_or_else(new_request_id),
            spec: Some(spec),
            validate_only,
        };
        self.call(self.operation("submit the pipeline"), |channel| {
            let request = request.clone();
            async move { jobs(channel).submit_pipeline(request).await }
        })
        .await
    }

    /// Reads a pipeline with its jobs.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `UNKNOWN_PIPELINE`.
    pub async fn get_pipeline(
        &self,
        pipeline: PipelineId,
        consistency: v1::Consistency,
    ) -> Result<PipelineDetail, ClientError> {
        let operation = "read the pipeline";
        let request = v1::GetPipelineRequest {
            pipeline_id: pipeline.get(),
            consistency: consistency.into(),
            at_revision: self.at_revision(),
        };
        let answer = self
            .call(self.operation(operation), |channel| async move {
                jobs(channel).get_pipeline(request).await
            })
            .await?;
        self.check_revision(operation, answer.revision)?;
        let missing = || ClientError::Malformed {
            operation,
            detail: "it contains no pipeline".to_owned(),
        };
        Ok(PipelineDetail {
            revision: Revision(answer.revision),
            pipeline: answer.pipeline.ok_or_else(missing)?,
            jobs: answer.jobs,
        })
    }

    /// Lists the newest `rows_max` matching pipelines, with the revision of the first page.
    ///
    /// # Errors
    /// Those of a call.
    pub async fn list_pipelines(
        &self,
        mut request: v1::ListPipelinesRequest,
        rows_max: usize,
    ) -> Result<(Revision, Vec<v1::Pipeline>), ClientError> {
        let mut rows = Vec::new();
        let mut revision = None;
        let operation = self.operation("list pipelines");
        request.at_revision = self.at_revision();
        loop {
            request.page_size = page_rows(rows_max - rows.len());
            let page = self
                .call(operation, |channel| {
                    let request = request.clone();
                    async move { jobs(channel).list_pipelines(request).await }
                })
                .await?;
            self.check_revision(operation.name, page.revision)?;
            let first = *revision.get_or_insert(Revision(page.revision));
            rows.extend(page.pipelines);
            if page.next_page_token.is_empty() || rows.len() >= rows_max {
                rows.truncate(rows_max);
                return Ok((first, rows));
            }
            request.page_token = page.next_page_token;
        }
    }

    /// Cancels every unfinished job of a pipeline, the last ones first, so that none starts because a
    /// dependency has ended. Returns the cancelled jobs.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with reason `UNKNOWN_PIPELINE`. Jobs cancelled before an error stay
    /// cancelled; the call may be repeated.
    pub async fn cancel_pipeline(
        &self,
        pipeline: PipelineId,
        author: &str,
        reason: &str,
    ) -> Result<Vec<JobId>, ClientError> {
        let consistency = v1::Consistency::Linearizable;
        let detail = self.get_pipeline(pipeline, consistency).await?;
        let mut asked = Vec::new();
        let live = detail.jobs.iter().filter(|job| !is_finished(job.phase()));
        for job in live.rev() {
            match self.cancel_job(JobId(job.id), author, reason).await {
                Ok(_) => asked.push(JobId(job.id)),
                // It has ended meanwhile.
                Err(error) if error.reason() == Some("JOB_FINISHED") => {}
                Err(error) => return Err(error),
            }
        }
        Ok(asked)
    }
}
