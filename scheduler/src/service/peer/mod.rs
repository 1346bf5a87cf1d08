//! `PeerService`: requests of other replicas.

pub(super) mod peer_pool;
pub(super) mod recipient;

use std::collections::BTreeMap;
use std::pin::Pin;

use futures::Stream;
use futures::future::join_all;
use muster_log::COMMAND_FORMAT;
use muster_model::ids::{HostId, LeadershipEpoch};
use muster_proto::v1::peer_service_server::PeerService;
use muster_proto::v1::write_result::Kind as Outcome;
use muster_proto::{status, v1};
use tokio::time::Instant;
use tonic::{Code, Request, Response, Status, Streaming};

use crate::leader::{Clock, Fence, HeartbeatPush, Superseded};
use crate::service::context::Context;
use crate::service::jobs::{exec, logs, progress};
use crate::service::peer::peer_pool::{EPOCH_KEY, SUPERSEDED, TERM_KEY};
use crate::service::peer::recipient::Recipient;
use crate::service::write::deadline;
use crate::service::write::forward::{FORWARDED_WRITES_MAX, error_to_wire};
use crate::service::write::request::execute_forwarded;

/// `PeerService` of one replica.
pub(crate) struct Peers(pub(crate) Context);

#[tonic::async_trait]
impl PeerService for Peers {
    type ForwardLogsStream =
        Pin<Box<dyn Stream<Item = Result<v1::StreamLogsResponse, Status>> + Send>>;

    type ForwardExecStream = exec::Answers;

    async fn forward_exec(
        &self,
        request: Request<Streaming<v1::ExecRequest>>,
    ) -> Result<Response<Self::ForwardExecStream>, Status> {
        let answers = exec::start_here(&self.0, request.into_inner()).await?;
        Ok(Response::new(answers))
    }

    async fn forward_writes(
        &self,
        request: Request<v1::ForwardWritesRequest>,
    ) -> Result<Response<v1::ForwardWritesResponse>, Status> {
        let deadline = deadline::of(request.metadata(), self.0.request_ms_default());
        let request = request.into_inner();
        self.check(request.cluster_id.as_deref(), request.to_replica_id)?;
        let writes = request.writes;
        if writes.len() > FORWARDED_WRITES_MAX {
            let message = format!(
                "{} writes are over the limit of {FORWARDED_WRITES_MAX} (FORWARDED_WRITES_MAX)",
                writes.len()
            );
            return Err(status::error(
                Code::InvalidArgument,
                "INVALID_REQUEST",
                &message,
                &[],
            ));
        }
        let _permit = self.0.admit()?;
        // All at once: the replication packs them into one entry.
        let results = join_all(
            writes
                .into_iter()
                .map(|write| self.execute(write, deadline)),
        )
        .await;
        Ok(Response::new(v1::ForwardWritesResponse { results }))
    }

    async fn forward_logs(
        &self,
        request: Request<v1::StreamLogsRequest>,
    ) -> Result<Response<Self::ForwardLogsStream>, Status> {
        let stream = logs::stream_here(&self.0, request.into_inner())?;
        Ok(Response::new(stream))
    }

    async fn forward_progress(
        &self,
        request: Request<v1::GetProgressRequest>,
    ) -> Result<Response<v1::GetProgressResponse>, Status> {
        let answer = progress::here(&self.0, &request.into_inner())?;
        Ok(Response::new(answer))
    }

    async fn push_heartbeats(
        &self,
        request: Request<v1::PushHeartbeatsRequest>,
    ) -> Result<Response<v1::PushHeartbeatsResponse>, Status> {
        let request = request.into_inner();
        self.check(request.cluster_id.as_deref(), request.to_replica_id)?;
        let push = HeartbeatPush {
            fence: fence(request.term, request.leadership_epoch),
            last_heartbeat_age_ms: hosts(request.last_heartbeat_age_ms),
            command_format: u8::try_from(request.command_format).unwrap_or(0),
        };
        let own_term = self.0.handle.status().term;
        let now = self.0.clock.monotonic();
        self.0
            .heartbeats
            .lock()
            .push(now, own_term, &push)
            .map_err(superseded)?;
        Ok(Response::new(v1::PushHeartbeatsResponse {
            command_format: COMMAND_FORMAT.into(),
        }))
    }

    async fn get_heartbeats(
        &self,
        request: Request<v1::GetHeartbeatsRequest>,
    ) -> Result<Response<v1::GetHeartbeatsResponse>, Status> {
        let request = request.into_inner();
        self.check(request.cluster_id.as_deref(), request.to_replica_id)?;
        let asking = fence(request.term, request.leadership_epoch);
        let own_term = self.0.handle.status().term;
        let now = self.0.clock.monotonic();
        let (known, report) = {
            let mut heartbeats = self.0.heartbeats.lock();
            let known = heartbeats.last_pushed_by();
            (
                known,
                heartbeats
                    .report(now, own_term, asking)
                    .map_err(superseded)?,
            )
        };
        Ok(Response::new(v1::GetHeartbeatsResponse {
            leadership_epoch: known.get(),
            last_heartbeat_age_ms: report
                .last_heartbeat_age_ms
                .into_iter()
                .map(|(host, ago)| (host.get(), ago))
                .collect(),
            remembers_ms: report.remembers_ms,
        }))
    }
}

impl Peers {
    /// Refuses messages for another cluster or replica.
    fn check(&self, cluster_id: Option<&str>, replica_id: Option<u64>) -> Result<(), Status> {
        let recipient = Recipient {
            cluster_id,
            replica_id,
        };
        let config = &self.0.config;
        recipient.check(&config.cluster_id, config.replica_id)
    }

    /// Executes here or not at all: a forwarded write is not forwarded again.
    async fn execute(&self, write: v1::Write, deadline: Instant) -> v1::WriteResult {
        let result = match write.kind {
            Some(kind) => execute_forwarded(&self.0, kind, deadline).await,
            None => Err(Status::invalid_argument("a forwarded write is empty")),
        };
        let kind = result.unwrap_or_else(|status| Outcome::Error(error_to_wire(&status)));
        v1::WriteResult { kind: Some(kind) }
    }
}

const fn fence(term: u64, epoch: u64) -> Fence {
    Fence {
        term,
        epoch: LeadershipEpoch(epoch),
    }
}

fn hosts(ages: impl IntoIterator<Item = (u32, u64)>) -> BTreeMap<HostId, u64> {
    ages.into_iter()
        .map(|(host, ago)| (HostId(host), ago))
        .collect()
}

fn superseded(error: Superseded) -> Status {
    let metadata = [
        (TERM_KEY, error.known.term.to_string()),
        (EPOCH_KEY, error.known.epoch.to_string()),
    ];
    status::error(
        Code::FailedPrecondition,
        SUPERSEDED,
        &error.to_string(),
        &metadata,
    )
}
