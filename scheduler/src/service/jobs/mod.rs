//! `JobService`.

pub(super) mod exec;
pub(super) mod exec_input;
pub(super) mod explain;
pub(super) mod log_source;
pub(super) mod logs;
pub(super) mod pipelines;
pub(super) mod progress;

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;

use futures::Stream;
use metrics::histogram;
use muster_engine::state::{Job, State};
use muster_model::ids::{JobId, PipelineId, UnitIndex};
use muster_model::rejection::Rejection;
use muster_proto::status::status_of;
use muster_proto::v1;
use muster_proto::v1::job_service_server::JobService;
use tokio::time::Instant;
use tonic::{Request, Response, Status, Streaming};

use crate::metrics::names;
use crate::service::context::Context;
use crate::service::gate::{Caller, caller_of};
use crate::service::read;
use crate::service::read::page::{self, Page};
use crate::service::watch::access_guard::while_allowed;
use crate::service::write::request::WriteRequest;
use crate::service::write::{CallerContext, deadline, serve, write};
use crate::spans::{Submission, Submitted, traced};
use crate::view::{job_to_wire, unit_to_wire};

/// `JobService` of one replica.
pub(crate) struct Jobs(pub(crate) Context);

#[tonic::async_trait]
impl JobService for Jobs {
    type StreamLogsStream =
        Pin<Box<dyn Stream<Item = Result<v1::StreamLogsResponse, Status>> + Send>>;

    type ExecStream = exec::Answers;

    async fn exec(
        &self,
        request: Request<Streaming<v1::ExecRequest>>,
    ) -> Result<Response<Self::ExecStream>, Status> {
        let (from, caller) = (request.remote_addr(), caller_of(&request));
        let answers = exec::start(&self.0, request.into_inner(), from, caller).await?;
        Ok(Response::new(answers))
    }

    async fn submit_job(
        &self,
        request: Request<v1::SubmitJobRequest>,
    ) -> Result<Response<v1::SubmitJobResponse>, Status> {
        let request_id = request.get_ref().request_id.clone();
        self.submit(request, &request_id).await
    }

    async fn get_job(
        &self,
        request: Request<v1::GetJobRequest>,
    ) -> Result<Response<v1::GetJobResponse>, Status> {
        let _permit = self.0.admit()?;
        let calling = CallerContext::of(&self.0, &request);
        let request = request.into_inner();
        let state = read::shown(
            &self.0,
            request.consistency,
            request.at_revision,
            calling.deadline,
        )
        .await?;
        calling
            .caller
            .require_view(&state, find(&state, JobId(request.job_id))?)?;
        let limit = self.0.page_limit();
        get(&state, &request, limit).map(Response::new)
    }

    async fn list_jobs(
        &self,
        request: Request<v1::ListJobsRequest>,
    ) -> Result<Response<v1::ListJobsResponse>, Status> {
        let _permit = self.0.admit()?;
        let calling = CallerContext::of(&self.0, &request);
        let request = request.into_inner();
        let state = read::shown(
            &self.0,
            request.consistency,
            request.at_revision,
            calling.deadline,
        )
        .await?;
        let limit = self.0.page_limit();
        list(&state, &calling.caller, &request, limit).map(Response::new)
    }

    async fn cancel_job(
        &self,
        request: Request<v1::CancelJobRequest>,
    ) -> Result<Response<v1::CancelJobResponse>, Status> {
        serve(&self.0, request).await
    }

    async fn suspend_job(
        &self,
        request: Request<v1::SuspendJobRequest>,
    ) -> Result<Response<v1::SuspendJobResponse>, Status> {
        serve(&self.0, request).await
    }

    async fn resume_job(
        &self,
        request: Request<v1::ResumeJobRequest>,
    ) -> Result<Response<v1::ResumeJobResponse>, Status> {
        serve(&self.0, request).await
    }

    async fn explain_job(
        &self,
        request: Request<v1::ExplainJobRequest>,
    ) -> Result<Response<v1::ExplainJobResponse>, Status> {
        let _permit = self.0.admit()?;
        let calling = CallerContext::of(&self.0, &request);
        let request = request.into_inner();
        let state = read::shown(
            &self.0,
            request.consistency,
            request.at_revision,
            calling.deadline,
        )
        .await?;
        calling
            .caller
            .require_view(&state, find(&state, JobId(request.job_id))?)?;
        // Planning ahead takes long enough to block other tasks of this thread.
        let until = explain::search_end(Instant::now(), calling.deadline);
        let explained =
            tokio::task::spawn_blocking(move || explain::job(&state, JobId(request.job_id), until));
        let answer = explained
            .await
            .map_err(|error| Status::internal(format!("explain the job: {error}")))?;
        answer.map(Response::new)
    }

    async fn submit_pipeline(
        &self,
        request: Request<v1::SubmitPipelineRequest>,
    ) -> Result<Response<v1::SubmitPipelineResponse>, Status> {
        let request_id = request.get_ref().request_id.clone();
        self.submit(request, &request_id).await
    }

    async fn get_pipeline(
        &self,
        request: Request<v1::GetPipelineRequest>,
    ) -> Result<Response<v1::GetPipelineResponse>, Status> {
        let _permit = self.0.admit()?;
        let calling = CallerContext::of(&self.0, &request);
        let request = request.into_inner();
        let state = read::shown(
            &self.0,
            request.consistency,
            request.at_revision,
            calling.deadline,
        )
        .await?;
        let id = PipelineId(request.pipeline_id);
        state
            .jobs_of(id)
            .try_for_each(|job| calling.caller.require_view(&state, job))?;
        pipelines::get(&state, id).map(Response::new)
    }

    async fn list_pipelines(
        &self,
        request: Request<v1::ListPipelinesRequest>,
    ) -> Result<Response<v1::ListPipelinesResponse>, Status> {
        let _permit = self.0.admit()?;
        let calling = CallerContext::of(&self.0, &request);
        let request = request.into_inner();
        let state = read::shown(
            &self.0,
            request.consistency,
            request.at_revision,
            calling.deadline,
        )
        .await?;
        let limit = self.0.page_limit();
        pipelines::list(&state, &calling.caller, &request, limit).map(Response::new)
    }

    async fn stream_logs(
        &self,
        request: Request<v1::StreamLogsRequest>,
    ) -> Result<Response<Self::StreamLogsStream>, Status> {
        let deadline = Instant::now() + self.0.default_wait();
        let (caller, job) = (caller_of(&request), request.get_ref().job_id);
        self.check_view(&request, job, deadline).await?;
        let stream = logs::stream(&self.0, request.into_inner(), deadline).await?;
        let context = self.0.clone();
        let check = move || {
            let now_ms = context.handle.now_ms();
            let sees = |state: &State| caller.require_view_still(state, now_ms, JobId(job));
            context.handle.with_state(sees)
        };
        Ok(Response::new(while_allowed(stream, Arc::new(check))))
    }

    async fn get_progress(
        &self,
        request: Request<v1::GetProgressRequest>,
    ) -> Result<Response<v1::GetProgressResponse>, Status> {
        let _permit = self.0.admit()?;
        let deadline = self.deadline(&request);
        self.check_view(&request, request.get_ref().job_id, deadline)
            .await?;
        let answer = progress::get(&self.0, request.into_inner(), deadline).await?;
        Ok(Response::new(answer))
    }
}

impl Jobs {
    /// Answers a submission, with its span.
    async fn submit<R>(
        &self,
        request: Request<R>,
        request_id: &str,
    ) -> Result<Response<R::Response>, Status>
    where
        R: WriteRequest,
        R::Response: Submitted,
    {
        let began = Instant::now();
        let _permit = self.0.admit()?;
        let calling = CallerContext::of(&self.0, &request);
        let span = Submission::began(&request, request_id);
        let answer = write(&self.0, request.into_inner(), calling).await;
        let context = span.and_then(|span| span.answered(self.0.config.replica_id, &answer));
        let answer = answer?;
        histogram!(names::SUBMIT_SECONDS).record(began.elapsed());
        Ok(traced(answer, context))
    }

    /// Refuses to show data of a job that the caller may not see. A job unknown here may be known to the
    /// leader.
    async fn check_view<T>(
        &self,
        request: &Request<T>,
        job: u64,
        deadline: Instant,
    ) -> Result<(), Status> {
        let (caller, id) = (caller_of(request), JobId(job));
        if caller == Caller::AuthenticationOff {
            return Ok(());
        }
        let check = |state: &State| state.job(id).map(|job| caller.require_view(state, job));
        if let Some(seen) = self.0.handle.with_state(check) {
            return seen;
        }
        let state = read::state(&self.0, v1::Consistency::Linearizable.into(), deadline).await?;
        caller.require_view(&state, find(&state, id)?)
    }

    fn deadline<T>(&self, request: &Request<T>) -> Instant {
        deadline::of(request.metadata(), self.0.request_ms_default())
    }
}

/// The job, or the error that it does not exist.
pub(crate) fn find(state: &State, id: JobId) -> Result<&Job, Status> {
    state
        .job(id)
        .ok_or_else(|| status_of(&Rejection::UnknownJob(id)))
}

fn get(
    state: &State,
    request: &v1::GetJobRequest,
    limit: page::Limit,
) -> Result<v1::GetJobResponse, Status> {
    let job = find(state, JobId(request.job_id))?;
    let shown_job = job_to_wire(job);
    let page = Page::new(request.unit_page_size, limit).reserving(&shown_job);
    let first = match page::parse::<1>("unit_page_token", &request.unit_page_token)? {
        None => UnitIndex(0),
        Some([index]) => u32::try_from(index)
            .map(UnitIndex)
            .map_err(|_| page::damaged("unit_page_token", &request.unit_page_token))?,
    };
    let mut units = job.units.range(first..);
    let shown = page.fill(&mut units, |(index, unit)| {
        unit_to_wire(state, job, *index, unit)
    });
    Ok(v1::GetJobResponse {
        revision: state.revision.get(),
        job: Some(shown_job),
        units: shown,
        next_unit_page_token: units
            .next()
            .map_or_else(String::new, |(index, _)| index.to_string()),
    })
}

fn list(
    state: &State,
    caller: &Caller,
    request: &v1::ListJobsRequest,
    limit: page::Limit,
) -> Result<v1::ListJobsResponse, Status> {
    let mut page = Page::new(request.page_size, limit);
    let newest = match page::parse::<1>("page_token", &request.page_token)? {
        None => JobId(u64::MAX),
        Some([id]) => JobId(id),
    };
    let phases: BTreeSet<i32> = request.phases.iter().copied().collect();
    let mut next_page_token = String::new();
    for (examined, (id, job)) in state.jobs.range(..=newest).rev().enumerate() {
        if page.is_full() || examined == page::EXAMINED_ROWS_MAX {
            next_page_token = id.to_string();
            break;
        }
        if matches(job, request, &phases) && caller.can_view(state, job) {
            page.add(job_to_wire(job));
        }
    }
    Ok(v1::ListJobsResponse {
        revision: state.revision.get(),
        jobs: page.into_rows(),
        next_page_token,
    })
}

fn matches(job: &Job, request: &v1::ListJobsRequest, phases: &BTreeSet<i32>) -> bool {
    let spec = &job.spec;
    (request.queue.is_empty() || spec.queue == request.queue)
        && (request.user.is_empty() || spec.user == request.user)
        && (request.name.is_empty() || spec.name.contains(&request.name))
        && (request.pipeline_id == 0 || is_of(job, PipelineId(request.pipeline_id)))
        && (phases.is_empty() || phases.contains(&(v1::JobPhase::from(job.phase) as i32)))
}

/// Whether a job belongs to a pipeline.
fn is_of(job: &Job, pipeline: PipelineId) -> bool {
    job.pipeline
        .as_ref()
        .is_some_and(|mark| mark.id == pipeline)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_harness::{Cluster, single};
    use prost::Message as _;

    use super::*;

    /// Default size of the largest message in bytes.
    const MESSAGE_BYTES: usize = 16 << 20;

    #[test]
    fn jobs_with_long_specifications_are_all_listed_over_several_pages() {
        let mut cluster = Cluster::new();
        let mut submitted: Vec<u64> = Vec::new();
        for _ in 0..20 {
            let mut spec = single("large", 1, 0);
            spec.groups[0].command.push("x".repeat(1_000_000));
            submitted.push(cluster.submit(spec).get());
        }
        submitted.reverse();
        let limit = page::Limit::new(1_000, MESSAGE_BYTES);
        let mut request = v1::ListJobsRequest {
            page_size: 1_000,
            ..v1::ListJobsRequest::default()
        };
        let (mut listed, mut pages) = (Vec::new(), 0);
        loop {
            let answer = list(&cluster.state, &Caller::AuthenticationOff, &request, limit).unwrap();
            assert!(answer.encoded_len() < MESSAGE_BYTES);
            pages += 1;
            listed.extend(answer.jobs.iter().map(|job| job.id));
            if answer.next_page_token.is_empty() {
                break;
            }
            request.page_token = answer.next_page_token;
        }
        assert_eq!(listed, submitted);
        assert_eq!(pages, 3, "of nine jobs at most");
    }
}
