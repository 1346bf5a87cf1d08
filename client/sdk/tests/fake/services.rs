//! Services of a fake replica.

use std::pin::Pin;

use futures::Stream;
use muster_proto::v1;
use muster_proto::v1::cluster_service_server::ClusterService;
use muster_proto::v1::job_service_server::JobService;
use muster_proto::v1::watch_service_server::WatchService;
use tonic::{Request, Response, Status};

use crate::fake::{Act, Part, Replica, lock};

type Parts<T> = Pin<Box<dyn Stream<Item = Part<T>> + Send>>;

impl Replica {
    fn record_call(&self, call: String) {
        lock(&self.calls).push(call);
    }

    /// Reacts as scripted, with `serve` for a correct answer.
    async fn act<T>(&self, serve: impl FnOnce() -> T) -> Result<Response<T>, Status> {
        let act = lock(&self.acts).pop_front().unwrap_or(Act::Serve);
        match act {
            Act::Serve => Ok(Response::new(serve())),
            Act::ServeAndLose(status) => {
                serve();
                Err(status)
            }
            Act::Refuse(status) => Err(status),
            Act::Hang => std::future::pending().await,
        }
    }

    fn record_deadline<T>(&self, request: &Request<T>) {
        let header = request.metadata().get("grpc-timeout");
        let text = header.and_then(|value| value.to_str().ok());
        lock(&self.deadlines).push(text.map(str::to_owned));
    }

    fn submit(&self, request: v1::SubmitJobRequest) -> v1::SubmitJobResponse {
        let mut jobs = lock(&self.cluster.jobs);
        let next = jobs.len() as u64 + 1;
        let repeated = jobs.contains_key(&request.request_id);
        let job_id = *jobs.entry(request.request_id).or_insert(next);
        v1::SubmitJobResponse {
            job_id,
            revision: job_id,
            repeated,
        }
    }

    fn job(&self, id: u64) -> v1::GetJobResponse {
        let mut phases = lock(&self.phases);
        let phase = match phases.len() {
            0 => v1::JobPhase::Queued,
            1 => phases[0],
            _ => phases.pop_front().unwrap_or_default(),
        };
        v1::GetJobResponse {
            revision: 1,
            job: Some(v1::Job {
                id,
                phase: phase.into(),
                ..v1::Job::default()
            }),
            ..v1::GetJobResponse::default()
        }
    }
}

/// The parts of a script, then an idle open stream, as with a live stream; without a script the stream ends
/// at once.
fn stream<T: Send + 'static>(parts: Option<Vec<Part<T>>>) -> Parts<T> {
    use futures::StreamExt;
    match parts {
        None => Box::pin(futures::stream::empty()),
        Some(parts) => Box::pin(futures::stream::iter(parts).chain(futures::stream::pending())),
    }
}

#[tonic::async_trait]
impl JobService for Replica {
    type StreamLogsStream = Parts<v1::StreamLogsResponse>;

    async fn submit_job(
        &self,
        request: Request<v1::SubmitJobRequest>,
    ) -> Result<Response<v1::SubmitJobResponse>, Status> {
        self.record_deadline(&request);
        let request = request.into_inner();
        self.record_call(format!("submit {}", request.request_id));
        self.act(|| self.submit(request)).await
    }

    async fn get_job(
        &self,
        request: Request<v1::GetJobRequest>,
    ) -> Result<Response<v1::GetJobResponse>, Status> {
        let id = request.into_inner().job_id;
        self.record_call(format!("get {id}"));
        self.act(|| self.job(id)).await
    }

    async fn list_jobs(
        &self,
        request: Request<v1::ListJobsRequest>,
    ) -> Result<Response<v1::ListJobsResponse>, Status> {
        let request = request.into_inner();
        self.record_call(format!(
            "list {} {:?}",
            request.page_size, request.page_token
        ));
        let first: u64 = request.page_token.parse().unwrap_or(0);
        let last = first + 2;
        self.act(|| v1::ListJobsResponse {
            revision: 7 + first,
            jobs: (first..last)
                .map(|id| v1::Job {
                    id,
                    ..v1::Job::default()
                })
                .collect(),
            next_page_token: if last < 5 {
                last.to_string()
            } else {
                String::new()
            },
        })
        .await
    }

    async fn cancel_job(
        &self,
        _: Request<v1::CancelJobRequest>,
    ) -> Result<Response<v1::CancelJobResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn suspend_job(
        &self,
        _: Request<v1::SuspendJobRequest>,
    ) -> Result<Response<v1::SuspendJobResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn resume_job(
        &self,
        _: Request<v1::ResumeJobRequest>,
    ) -> Result<Response<v1::ResumeJobResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn submit_pipeline(
        &self,
        _: Request<v1::SubmitPipelineRequest>,
    ) -> Result<Response<v1::SubmitPipelineResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn get_pipeline(
        &self,
        _: Request<v1::GetPipelineRequest>,
    ) -> Result<Response<v1::GetPipelineResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn list_pipelines(
        &self,
        _: Request<v1::ListPipelinesRequest>,
    ) -> Result<Response<v1::ListPipelinesResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn explain_job(
        &self,
        _: Request<v1::ExplainJobRequest>,
    ) -> Result<Response<v1::ExplainJobResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn get_progress(
        &self,
        _: Request<v1::GetProgressRequest>,
    ) -> Result<Response<v1::GetProgressResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    type ExecStream = Parts<v1::ExecResponse>;

    async fn exec(
        &self,
        _: Request<tonic::Streaming<v1::ExecRequest>>,
    ) -> Result<Response<Self::ExecStream>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn stream_logs(
        &self,
        request: Request<v1::StreamLogsRequest>,
    ) -> Result<Response<Self::StreamLogsStream>, Status> {
        let request = request.into_inner();
        self.record_call(format!("logs {} {:?}", request.attempt, request.start));
        let parts = lock(&self.logs).pop_front();
        self.act(|| stream(parts)).await
    }
}

#[tonic::async_trait]
impl ClusterService for Replica {
    async fn get_status(
        &self,
        _: Request<v1::GetStatusRequest>,
    ) -> Result<Response<v1::GetStatusResponse>, Status> {
        self.record_call("status".to_owned());
        let addresses = lock(&self.cluster.members).clone();
        let replicas = addresses.into_iter().map(|address| v1::Replica {
            address,
            ..v1::Replica::default()
        });
        self.act(|| v1::GetStatusResponse {
            replicas: replicas.collect(),
            leader_address: lock(&self.cluster.leader).clone(),
            ..v1::GetStatusResponse::default()
        })
        .await
    }

    async fn list_hosts(
        &self,
        _: Request<v1::ListHostsRequest>,
    ) -> Result<Response<v1::ListHostsResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn list_gpus(
        &self,
        _: Request<v1::ListGpusRequest>,
    ) -> Result<Response<v1::ListGpusResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn list_queues(
        &self,
        _: Request<v1::ListQueuesRequest>,
    ) -> Result<Response<v1::ListQueuesResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    async fn get_topology(
        &self,
        _: Request<v1::GetTopologyRequest>,
    ) -> Result<Response<v1::GetTopologyResponse>, Status> {
        Err(Status::unimplemented("not in this test"))
    }

    type ExportStateStream = Parts<v1::ExportStateResponse>;

    async fn export_state(
        &self,
        _: Request<v1::ExportStateRequest>,
    ) -> Result<Response<Self::ExportStateStream>, Status> {
        self.record_call("export".to_owned());
        let parts = lock(&self.exports).pop_front().unwrap_or_default();
        self.act(|| -> Self::ExportStateStream { Box::pin(futures::stream::iter(parts)) })
            .await
    }
}

#[tonic::async_trait]
impl WatchService for Replica {
    type WatchStream = Parts<v1::WatchResponse>;

    async fn watch(
        &self,
        request: Request<v1::WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        self.record_deadline(&request);
        let from = request.into_inner().from_revision;
        self.record_call(format!("watch {from:?}"));
        let parts = lock(&self.watches).pop_front();
        self.act(|| stream(parts)).await
    }
}
