//! Calls of the public interface.

use http::uri::PathAndQuery;
use muster_proto::v1;
use muster_proto::v1::admin_service_client::AdminServiceClient;
use muster_proto::v1::cluster_service_client::ClusterServiceClient;
use muster_proto::v1::job_service_client::JobServiceClient;
use muster_proto::v1::peer_service_client::PeerServiceClient;
use muster_proto::v1::watch_service_client::WatchServiceClient;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_prost::ProstCodec;

/// A client of one replica.
#[derive(Clone)]
pub(crate) struct Client {
    channel: Channel,
}

impl Client {
    pub(crate) fn new(address: &str) -> Self {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap();
        Self {
            channel: endpoint.connect_lazy(),
        }
    }

    pub(crate) fn jobs(&self) -> JobServiceClient<Channel> {
        JobServiceClient::new(self.channel.clone())
    }

    pub(crate) fn admin(&self) -> AdminServiceClient<Channel> {
        AdminServiceClient::new(self.channel.clone())
    }

    pub(crate) fn peer(&self) -> PeerServiceClient<Channel> {
        PeerServiceClient::new(self.channel.clone())
    }

    /// Whether the replica reports that it serves; `None` if it does not answer.
    pub(crate) async fn is_serving(&self) -> Option<bool> {
        let request = HealthCheckRequest {
            service: String::new(),
        };
        let answer = HealthClient::new(self.channel.clone()).check(request).await;
        Some(answer.ok()?.into_inner().status() == ServingStatus::Serving)
    }

    pub(crate) fn cluster(&self) -> ClusterServiceClient<Channel> {
        ClusterServiceClient::new(self.channel.clone())
    }

    pub(crate) async fn status(
        &self,
        consistency: v1::Consistency,
    ) -> Result<v1::GetStatusResponse, Status> {
        let request = v1::GetStatusRequest {
            consistency: consistency.into(),
        };
        Ok(self.cluster().get_status(request).await?.into_inner())
    }

    /// Calls an unknown method.
    pub(crate) async fn call_unknown_method(&self, path: &'static str) -> Result<(), Status> {
        let mut channel = Grpc::new(self.channel.clone());
        let ready = channel.ready().await;
        ready.map_err(|error| Status::unknown(error.to_string()))?;
        let codec = ProstCodec::<(), ()>::default();
        let path = PathAndQuery::from_static(path);
        channel.unary(Request::new(()), path, codec).await.map(drop)
    }

    pub(crate) async fn submit(
        &self,
        request_id: &str,
        spec: v1::JobSpec,
    ) -> Result<v1::SubmitJobResponse, Status> {
        let request = v1::SubmitJobRequest {
            request_id: request_id.to_owned(),
            spec: Some(spec),
            validate_only: false,
        };
        Ok(self.jobs().submit_job(request).await?.into_inner())
    }

    pub(crate) async fn job(&self, job_id: u64) -> Result<v1::GetJobResponse, Status> {
        let request = v1::GetJobRequest {
            job_id,
            ..v1::GetJobRequest::default()
        };
        Ok(self.jobs().get_job(request).await?.into_inner())
    }

    pub(crate) async fn phase(&self, job_id: u64) -> Option<v1::JobPhase> {
        self.job(job_id).await.ok()?.job.map(|job| job.phase())
    }

    pub(crate) async fn host(&self, name: &str) -> Option<v1::Host> {
        let request = v1::ListHostsRequest {
            names: vec![name.to_owned()],
            ..v1::ListHostsRequest::default()
        };
        self.cluster()
            .list_hosts(request)
            .await
            .ok()?
            .into_inner()
            .hosts
            .pop()
    }

    /// Records of the replica's audit log.
    pub(crate) async fn audit_log(&self) -> Result<Vec<v1::AuditRecord>, Status> {
        let request = v1::ReadAuditLogRequest {
            author: "root".to_owned(),
            ..v1::ReadAuditLogRequest::default()
        };
        let mut messages = self.admin().read_audit_log(request).await?.into_inner();
        let mut records = Vec::new();
        while let Some(message) = messages.message().await? {
            records.extend(message.records);
        }
        Ok(records)
    }

    pub(crate) async fn watch(
        &self,
        from: Option<u64>,
    ) -> Result<Streaming<v1::WatchResponse>, Status> {
        let request = v1::WatchRequest {
            from_revision: from,
            ..v1::WatchRequest::default()
        };
        let mut client = WatchServiceClient::new(self.channel.clone());
        Ok(client.watch(request).await?.into_inner())
    }
}

/// A job of `tasks` independent tasks with one GPU each.
pub(crate) fn job(name: &str, tasks: u32) -> v1::JobSpec {
    v1::JobSpec {
        name: name.to_owned(),
        user: "ada".to_owned(),
        groups: vec![v1::TaskGroup {
            name: Some("main".to_owned()),
            count: Some(tasks),
            resources: Some(v1::Resources {
                gpus: 1,
                ..v1::Resources::default()
            }),
            command: vec!["train".to_owned()],
            ..v1::TaskGroup::default()
        }],
        ..v1::JobSpec::default()
    }
}

/// A gang of `tasks` tasks with one GPU each.
pub(crate) fn gang(name: &str, tasks: u32) -> v1::JobSpec {
    v1::JobSpec {
        gang: true,
        ..job(name, tasks)
    }
}
