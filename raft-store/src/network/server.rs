//! Server side of the messages between replicas.

use std::sync::Arc;

use futures::stream::{BoxStream, StreamExt as _};
use muster_proto::raft::v1 as proto;
use openraft::async_runtime::watch::WatchReceiver as _;
use openraft::errors::{LinearizableReadError, RaftError};
use openraft::{Raft, ReadPolicy, Snapshot};
use proto::peer_request::Body;
use proto::peer_response::Body as Answer;
use proto::refusal::Reason;
use tokio::sync::{Mutex, oneshot};

use crate::apply::applier::Applier;
use crate::apply::state_machine::{DecodeError, StateMachine};
use crate::network::receiver::ChunkError;
use crate::network::{DataAcceptance, SnapshotReceiver, convert as wire};
use crate::sim::{Runtime, detach};
use crate::storage::codec::convert;
use crate::types::Types;

/// Identity of this replica as its peers address it.
#[derive(Debug, Clone)]
pub(crate) struct ServerIdentity {
    pub(crate) cluster_id: String,
    pub(crate) replica_id: u64,
    pub(crate) incarnation: u64,
    /// Whether the group accepts this replica's data, as shown by messages from members.
    pub(crate) acceptance: DataAcceptance,
}

/// Checks requests and hands them to openraft.
pub(crate) struct Server<M: StateMachine, R: Runtime> {
    identity: ServerIdentity,
    raft: Raft<Types<M, R>, Applier<M, R>>,
    receiver: Arc<Mutex<SnapshotReceiver>>,
}

impl<M: StateMachine, R: Runtime> Clone for Server<M, R> {
    fn clone(&self) -> Self {
        Self {
            identity: self.identity.clone(),
            raft: self.raft.clone(),
            receiver: Arc::clone(&self.receiver),
        }
    }
}

fn refuse(reason: Reason, detail: impl ToString) -> proto::Refusal {
    proto::Refusal {
        reason: reason.into(),
        detail: detail.to_string(),
        leader: None,
    }
}

fn malformed(error: &DecodeError) -> proto::Refusal {
    refuse(Reason::Malformed, error)
}

fn stopped(error: impl ToString) -> proto::Refusal {
    refuse(Reason::Stopped, error)
}

fn not_taken(error: &ChunkError) -> proto::Refusal {
    let reason = match error {
        ChunkError::Busy => Reason::SnapshotBusy,
        ChunkError::OutOfOrder { .. } => Reason::SnapshotOutOfOrder,
        ChunkError::Malformed(_) => Reason::Malformed,
        ChunkError::Disk(_) => Reason::Stopped,
    };
    refuse(reason, error)
}

fn answer(result: Result<Answer, proto::Refusal>) -> proto::PeerResponse {
    proto::PeerResponse {
        body: Some(result.unwrap_or_else(Answer::Refusal)),
    }
}

impl<M: StateMachine, R: Runtime> Server<M, R> {
    pub(crate) fn new(
        identity: ServerIdentity,
        raft: Raft<Types<M, R>, Applier<M, R>>,
        receiver: SnapshotReceiver,
    ) -> Self {
        Self {
            identity,
            raft,
            receiver: Arc::new(Mutex::new(receiver)),
        }
    }

    /// Answers one request.
    pub(crate) async fn serve(&self, request: proto::PeerRequest) -> proto::PeerResponse {
        answer(self.dispatch(request).await)
    }

    /// Answers appends in order, several at a time; ends after the first that fails.
    pub(crate) fn serve_stream(
        &self,
        requests: BoxStream<'static, proto::PeerRequest>,
    ) -> BoxStream<'static, proto::PeerResponse> {
        let (refusals, refused) = tokio::sync::oneshot::channel();
        let mut refusals = Some(refusals);
        let identity = self.identity.clone();
        // openraft accepts decoded appends only; the first request that is not an append ends its input.
        let appends = requests
            .map(move |request| decode_append(&identity, request))
            .scan((), move |(), decoded| {
                futures::future::ready(match decoded {
                    Ok(append) => Some(append),
                    Err(refusal) => {
                        if let Some(sender) = refusals.take() {
                            // The reader may have been dropped with its connection.
                            drop(sender.send(refusal));
                        }
                        None
                    }
                })
            });
        let answers = self.raft.stream_append(appends).map(|result| {
            answer(match result {
                Ok(result) => Ok(Answer::Append(wire::append_result_to_proto::<M, R>(
                    &result,
                ))),
                Err(fatal) => Err(stopped(fatal)),
            })
        });
        let last = futures::stream::once(refused)
            .filter_map(|refusal| futures::future::ready(refusal.ok()))
            .map(|refusal| answer(Err(refusal)));
        answers.chain(last).boxed()
    }

    async fn dispatch(&self, request: proto::PeerRequest) -> Result<Answer, proto::Refusal> {
        check(&self.identity, &request)?;
        let body = request
            .body
            .ok_or_else(|| refuse(Reason::Malformed, "the request is empty"))?;
        match body {
            Body::Vote(vote) => self.vote(vote, false).await,
            Body::PreVote(vote) => self.vote(vote, true).await,
            Body::Append(append) => self.append(append).await,
            Body::SnapshotChunk(chunk) => self.snapshot_chunk(request.from, chunk).await,
            Body::Transfer(transfer) => self.transfer(transfer).await,
            Body::ReadIndex(proto::ReadIndexRequest {}) => self.read_index().await,
            Body::Hello(proto::HelloRequest {}) => self.hello().await,
        }
    }

    async fn hello(&self) -> Result<Answer, proto::Refusal> {
        let belongs_to_group = self.raft.is_initialized().await.map_err(stopped)?;
        let (membership_index, members) = self.committed_members();
        Ok(Answer::Hello(proto::HelloResponse {
            incarnation: self.identity.incarnation,
            belongs_to_group: Some(belongs_to_group),
            membership_index,
            members,
        }))
    }

    /// The committed membership known to this replica, and its log index; none while a later one is
    /// uncommitted.
    fn committed_members(&self) -> (Option<u64>, Vec<proto::Member>) {
        let receiver = self.raft.metrics();
        let metrics = receiver.borrow_watched();
        let stored = &metrics.membership_config;
        let applied = metrics.last_applied.map(|id| id.index);
        let index = stored.log_id().as_ref().map(|id| id.index);
        if index.is_none() || index > applied {
            return (None, Vec::new());
        }
        let members = stored
            .nodes()
            .map(|(id, node)| convert::member_to_proto(*id, node));
        (index, members.collect())
    }

    async fn vote(&self, request: proto::VoteRequest, pre: bool) -> Result<Answer, proto::Refusal> {
        let request = wire::vote_request_from_proto(request).map_err(|error| malformed(&error))?;
        let result = if pre {
            self.raft.pre_vote(request).await
        } else {
            self.raft.vote(request).await
        };
        let response = result.map_err(stopped)?;
        Ok(Answer::Vote(wire::vote_response_to_proto(&response)))
    }

    async fn append(&self, request: proto::AppendRequest) -> Result<Answer, proto::Refusal> {
        let request = wire::append_from_proto(request).map_err(|error| malformed(&error))?;
        let input = futures::stream::iter([request]);
        let mut results = std::pin::pin!(self.raft.stream_append(input));
        match results.next().await {
            Some(Ok(result)) => Ok(Answer::Append(wire::append_result_to_proto::<M, R>(
                &result,
            ))),
            Some(Err(fatal)) => Err(stopped(fatal)),
            None => Err(stopped("raft stopped")),
        }
    }

    async fn snapshot_chunk(
        &self,
        from: u64,
        chunk: proto::SnapshotChunk,
    ) -> Result<Answer, proto::Refusal> {
        if chunk.done {
            return self.last_chunk(from, chunk).await;
        }
        let taken = self.receiver.lock().await.take(from, &chunk);
        taken.map_err(|error| not_taken(&error))?;
        // No result is returned before the last chunk.
        Ok(Answer::Snapshot(proto::SnapshotResponse {
            vote: chunk.vote,
        }))
    }

    /// Receives the end of a snapshot and installs it, even if its sender has timed out: until then no
    /// other is accepted.
    async fn last_chunk(
        &self,
        from: u64,
        chunk: proto::SnapshotChunk,
    ) -> Result<Answer, proto::Refusal> {
        let server = self.clone();
        let (sender, answered) = oneshot::channel();
        detach::<R>(async move {
            let answer = server.finish_snapshot(from, chunk).await;
            // The sender may have timed out.
            drop(sender.send(answer));
        });
        answered.await.map_err(stopped)?
    }

    async fn finish_snapshot(
        &self,
        from: u64,
        chunk: proto::SnapshotChunk,
    ) -> Result<Answer, proto::Refusal> {
        let mut receiver = Arc::clone(&self.receiver).lock_owned().await;
        // The file is synced and read completely, which takes long.
        let taking = R::spawn_blocking(move || receiver.take(from, &chunk));
        let taken = taking.await.map_err(stopped)?;
        let received = taken
            .map_err(|error| not_taken(&error))?
            .ok_or_else(|| stopped("the last chunk ended no snapshot"))?;
        let snapshot = Snapshot {
            meta: received.meta,
            snapshot: received.file,
        };
        let installed = self
            .raft
            .install_full_snapshot(received.vote, snapshot)
            .await;
        self.receiver.lock().await.installed();
        let response = installed.map_err(stopped)?;
        Ok(Answer::Snapshot(proto::SnapshotResponse {
            vote: Some(convert::vote_to_proto(&response.vote)),
        }))
    }

    async fn transfer(&self, request: proto::TransferRequest) -> Result<Answer, proto::Refusal> {
        let request = wire::transfer_from_proto(request).map_err(|error| malformed(&error))?;
        let response = self
            .raft
            .handle_transfer_leader(request)
            .await
            .map_err(stopped)?;
        Ok(Answer::Transfer(wire::transfer_answer_to_proto::<M, R>(
            &response,
        )))
    }

    async fn read_index(&self) -> Result<Answer, proto::Refusal> {
        match self.raft.get_read_linearizer(ReadPolicy::ReadIndex).await {
            Ok(linearizer) => Ok(Answer::ReadIndex(proto::ReadIndexResponse {
                read: Some(convert::log_id_to_proto(linearizer.read_log_id().log_id())),
            })),
            Err(RaftError::APIError(LinearizableReadError::ForwardToLeader(forward))) => {
                let leader = forward.leader_id.zip(forward.leader_node.as_ref());
                Err(proto::Refusal {
                    leader: leader.map(|(id, node)| convert::member_to_proto(id, node)),
                    ..refuse(Reason::NotLeader, forward)
                })
            }
            Err(error) => Err(stopped(error)),
        }
    }
}

/// Rejects requests addressed to another replica.
fn check(identity: &ServerIdentity, request: &proto::PeerRequest) -> Result<(), proto::Refusal> {
    if request.cluster_id != identity.cluster_id {
        return Err(refuse(
            Reason::ForeignCluster,
            format!("a replica of cluster {:?}", identity.cluster_id),
        ));
    }
    if request.to != identity.replica_id {
        return Err(refuse(
            Reason::WrongReplica,
            format!("replica {}", identity.replica_id),
        ));
    }
    let expected = request.to_incarnation;
    if expected != 0 && expected != identity.incarnation {
        if identity.acceptance.record_refused() {
            log_disowned(identity, request.from);
        }
        return Err(refuse(
            Reason::OtherIncarnation,
            "this replica's data was replaced since it joined; remove it and add it again",
        ));
    }
    if expected != 0 {
        identity.acceptance.record_accepted();
    }
    if matches!(request.body, Some(Body::Append(_) | Body::SnapshotChunk(_))) {
        identity.acceptance.record_leader_message();
    }
    Ok(())
}

/// Without this log line a replica whose data directory was lost would silently wait forever.
fn log_disowned(identity: &ServerIdentity, from: u64) {
    tracing::error!(
        replica = identity.replica_id,
        reported_by = from,
        "the group knows this replica with other data: its data directory was lost or replaced. It takes no part in \
         the group and does not serve. Put the former data directory back and start it again; or, if that is gone, \
         remove this replica from the group and add a new one, with an id that was never used"
    );
}

fn decode_append<M: StateMachine, R: Runtime>(
    identity: &ServerIdentity,
    request: proto::PeerRequest,
) -> Result<openraft::raft::AppendEntriesRequest<Types<M, R>>, proto::Refusal> {
    check(identity, &request)?;
    match request.body {
        Some(Body::Append(append)) => {
            wire::append_from_proto(append).map_err(|error| malformed(&error))
        }
        _ => Err(refuse(Reason::Malformed, "the stream takes appends only")),
    }
}
