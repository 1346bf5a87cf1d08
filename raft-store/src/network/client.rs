//! openraft's network over a [`Transport`].

use std::future::Future;
use std::io::Read as _;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::{BoxFuture, FutureExt as _};
use futures::stream::{BoxStream, Stream, StreamExt as _};
use muster_proto::raft::v1 as proto;
use openraft::errors::{
    NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable,
};
use openraft::network::{
    Backoff, NetBackoff, NetSnapshot, NetStreamAppend, NetTransferLeader, NetVote, RPCOption,
    RaftNetworkFactory,
};
use openraft::raft::{
    AppendEntriesRequest, SnapshotResponse, StreamAppendResult, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{OptionalSend, RPCTypes, Snapshot};
use proto::peer_request::Body;
use proto::peer_response::Body as Answer;
use proto::refusal::Reason;

use crate::apply::state_machine::{DecodeError, StateMachine};
use crate::member::peer::Peer;
use crate::network::server::ServerIdentity;
use crate::network::{Transport, TransportError, convert as wire, stream_by_calls};
use crate::sim::Runtime;
use crate::storage::codec::convert;
use crate::storage::snapshot::SnapshotFile;
use crate::types::{LeaderId, Node, Types, Vote};

/// Item of a stream of appends.
type AppendAnswer<M, R> = Result<StreamAppendResult<Types<M, R>>, RPCError<Types<M, R>>>;

/// Makes a [`PeerClient`] for each member.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) identity: ServerIdentity,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) chunk_bytes: usize,
    pub(crate) peer_timeout: Duration,
    /// Timeout of an append: a follower's sync may stall that long.
    pub(crate) append_timeout: Duration,
}

impl Network {
    pub(crate) fn client(&self, id: u64, node: &Node) -> PeerClient {
        PeerClient {
            network: self.clone(),
            peer: Peer::new(id, node.address.clone()),
            incarnation: node.incarnation,
            streams: true,
        }
    }
}

impl<M: StateMachine, R: Runtime> RaftNetworkFactory<Types<M, R>> for Network {
    type Network = PeerClient;

    async fn new_client(&mut self, target: u64, node: &Node) -> PeerClient {
        self.client(target, node)
    }

    /// A heartbeat is one call instead of a stream: cheaper, and never queued behind appends.
    async fn new_heartbeat_client(&mut self, target: u64, node: &Node) -> PeerClient {
        PeerClient {
            streams: false,
            ..self.client(target, node)
        }
    }
}

/// Client of one member.
pub(crate) struct PeerClient {
    network: Network,
    peer: Peer,
    incarnation: u64,
    streams: bool,
}

impl PeerClient {
    fn request(&self, body: Body) -> proto::PeerRequest {
        proto::PeerRequest {
            cluster_id: self.network.identity.cluster_id.clone(),
            from: self.network.identity.replica_id,
            to: self.peer.id,
            to_incarnation: self.incarnation,
            body: Some(body),
        }
    }

    /// Sends one request; a refusal is an error.
    pub(crate) async fn call(
        &self,
        body: Body,
        timeout: Duration,
    ) -> Result<Answer, TransportError> {
        let request = self.request(body);
        let response = self
            .network
            .transport
            .call(self.peer.clone(), request, timeout)
            .await?;
        unpack(response)
    }

    /// Read position confirmed by the peer as leader, or else the leader that the peer knows.
    pub(crate) async fn read_index(&self) -> Result<proto::ReadIndexResponse, TransportError> {
        let body = Body::ReadIndex(proto::ReadIndexRequest {});
        match self.call(body, self.network.peer_timeout).await? {
            Answer::ReadIndex(answer) => Ok(answer),
            _ => Err(unexpected_answer()),
        }
    }

    /// The peer's incarnation, and whether it belongs to a group.
    pub(crate) async fn hello(&self) -> Result<proto::HelloResponse, TransportError> {
        let body = Body::Hello(proto::HelloRequest {});
        match self.call(body, self.network.peer_timeout).await? {
            Answer::Hello(answer) => Ok(answer),
            _ => Err(unexpected_answer()),
        }
    }

    fn to_rpc<M: StateMachine, R: Runtime>(
        &self,
        action: RPCTypes,
        error: TransportError,
    ) -> RPCError<Types<M, R>> {
        match error {
            TransportError::Unreachable(_) | TransportError::UnexpectedPeer(_) => {
                RPCError::Unreachable(Unreachable::new(&error))
            }
            TransportError::Broken(_) => RPCError::Network(NetworkError::new(&error)),
            TransportError::TimedOut { timeout_ms } => RPCError::Timeout(Timeout {
                action,
                id: self.network.identity.replica_id,
                target: self.peer.id,
                timeout: Duration::from_millis(timeout_ms),
            }),
        }
    }
}

fn unpack(response: proto::PeerResponse) -> Result<Answer, TransportError> {
    match response.body {
        Some(Answer::Refusal(refusal)) => Err(match refusal.reason() {
            Reason::ForeignCluster | Reason::WrongReplica => {
                TransportError::UnexpectedPeer(refusal.detail)
            }
            reason => TransportError::Unreachable(format!(
                "refused ({}): {}",
                reason.as_str_name(),
                refusal.detail
            )),
        }),
        Some(answer) => Ok(answer),
        None => Err(TransportError::Broken("the answer is empty".to_owned())),
    }
}

fn unexpected_answer() -> TransportError {
    TransportError::Broken("the answer does not fit the request".to_owned())
}

fn malformed<M: StateMachine, R: Runtime>(error: &DecodeError) -> RPCError<Types<M, R>> {
    RPCError::Network(NetworkError::new(error))
}

impl<M: StateMachine, R: Runtime> NetVote<Types<M, R>> for PeerClient {
    async fn vote(
        &mut self,
        request: VoteRequest<Types<M, R>>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types<M, R>>, RPCError<Types<M, R>>> {
        let body = Body::Vote(wire::vote_request_to_proto(&request));
        self.exchange_vote(body, &option).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Types<M, R>>,
        option: RPCOption,
    ) -> Result<VoteResponse<Types<M, R>>, RPCError<Types<M, R>>> {
        let body = Body::PreVote(wire::vote_request_to_proto(&request));
        self.exchange_vote(body, &option).await
    }
}

impl PeerClient {
    async fn exchange_vote<M: StateMachine, R: Runtime>(
        &self,
        body: Body,
        option: &RPCOption,
    ) -> Result<VoteResponse<Types<M, R>>, RPCError<Types<M, R>>> {
        match self.call(body, option.soft_ttl()).await {
            Ok(Answer::Vote(answer)) => {
                wire::vote_response_from_proto(answer).map_err(|error| malformed(&error))
            }
            Ok(_) => Err(self.to_rpc(RPCTypes::Vote, unexpected_answer())),
            Err(error) => Err(self.to_rpc(RPCTypes::Vote, error)),
        }
    }
}

impl<M: StateMachine, R: Runtime> NetStreamAppend<Types<M, R>> for PeerClient {
    fn stream_append<'s, S>(
        &'s mut self,
        input: S,
        option: RPCOption,
    ) -> BoxFuture<'s, Result<BoxStream<'s, AppendAnswer<M, R>>, RPCError<Types<M, R>>>>
    where
        S: Stream<Item = AppendEntriesRequest<Types<M, R>>> + OptionalSend + Unpin + 'static,
    {
        let template = self.request(Body::Hello(proto::HelloRequest {}));
        let requests = input
            .map(move |request| proto::PeerRequest {
                body: Some(Body::Append(wire::append_to_proto(&request))),
                ..template.clone()
            })
            .boxed();
        let answers = self.open_stream(requests, &option);
        let this = &*self;
        let results = answers
            .map(move |answer| this.to_append_result(answer))
            .boxed();
        futures::future::ready(Ok(results)).boxed()
    }
}

impl PeerClient {
    fn open_stream(
        &self,
        requests: BoxStream<'static, proto::PeerRequest>,
        option: &RPCOption,
    ) -> BoxStream<'static, Result<proto::PeerResponse, TransportError>> {
        let (transport, peer) = (Arc::clone(&self.network.transport), self.peer.clone());
        if self.streams {
            return transport.stream(peer, requests, self.network.append_timeout);
        }
        let timeout = option.soft_ttl();
        let call = move |request| transport.call(peer.clone(), request, timeout);
        stream_by_calls(call, requests)
    }

    fn to_append_result<M: StateMachine, R: Runtime>(
        &self,
        answer: Result<proto::PeerResponse, TransportError>,
    ) -> AppendAnswer<M, R> {
        match answer.and_then(unpack) {
            Ok(Answer::Append(answer)) => {
                wire::append_result_from_proto(answer).map_err(|error| malformed(&error))
            }
            Ok(_) => Err(self.to_rpc(RPCTypes::AppendEntries, unexpected_answer())),
            Err(error) => Err(self.to_rpc(RPCTypes::AppendEntries, error)),
        }
    }
}

impl<M: StateMachine, R: Runtime> NetSnapshot<Types<M, R>> for PeerClient {
    type SnapshotData = SnapshotFile;

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Snapshot<LeaderId, u64, Node, SnapshotFile>,
        cancel: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Types<M, R>>, StreamingError<Types<M, R>>> {
        let sending = std::pin::pin!(self.send_snapshot(vote, snapshot));
        let cancel = std::pin::pin!(cancel);
        match futures::future::select(cancel, sending).await {
            futures::future::Either::Left((closed, _)) => Err(StreamingError::Closed(closed)),
            futures::future::Either::Right((result, _)) => result,
        }
    }
}

impl PeerClient {
    /// Sends the file in chunks, each awaited, so that at most one is in memory.
    async fn send_snapshot<M: StateMachine, R: Runtime>(
        &self,
        vote: Vote,
        snapshot: Snapshot<LeaderId, u64, Node, SnapshotFile>,
    ) -> Result<SnapshotResponse<Types<M, R>>, StreamingError<Types<M, R>>> {
        let mut reader = snapshot
            .snapshot
            .open()
            .map_err(|error| StreamingError::Network(NetworkError::new(&error)))?;
        let mut chunk = proto::SnapshotChunk {
            vote: Some(convert::vote_to_proto(&vote)),
            last: snapshot
                .meta
                .last_log_id
                .as_ref()
                .map(convert::log_id_to_proto),
            membership: Some(convert::stored_membership_to_proto(
                &snapshot.meta.last_membership,
            )),
            ..proto::SnapshotChunk::default()
        };
        loop {
            let mut data = Vec::with_capacity(self.network.chunk_bytes);
            reader
                .by_ref()
                .take(self.network.chunk_bytes as u64)
                .read_to_end(&mut data)
                .map_err(|error| StreamingError::Network(NetworkError::new(&error)))?;
            chunk.done = data.len() < self.network.chunk_bytes;
            chunk.checksum = crc32fast::hash(&data);
            let length = data.len() as u64;
            chunk.data = Bytes::from(data);
            let sent = self.send_chunk::<M, R>(chunk.clone()).await;
            if chunk.done && sent.is_err() {
                // A receiver that has the whole snapshot reads all of it: it may have decayed on this disk
                // since it was last read.
                snapshot.snapshot.mark_suspect();
            }
            let theirs = sent?;
            if chunk.done || theirs > vote {
                return Ok(SnapshotResponse::new(theirs));
            }
            chunk.offset += length;
        }
    }

    async fn send_chunk<M: StateMachine, R: Runtime>(
        &self,
        chunk: proto::SnapshotChunk,
    ) -> Result<Vote, StreamingError<Types<M, R>>> {
        // The last chunk is answered after the install, which may load a large state.
        let factor = if chunk.done { 12 } else { 1 };
        let timeout = self.network.peer_timeout * factor;
        let answer = match self.call(Body::SnapshotChunk(chunk), timeout).await {
            Ok(Answer::Snapshot(answer)) => convert::vote_from_proto(answer.vote),
            Ok(_) => {
                return Err(self
                    .to_rpc(RPCTypes::InstallSnapshot, unexpected_answer())
                    .into());
            }
            Err(error) => return Err(self.to_rpc(RPCTypes::InstallSnapshot, error).into()),
        };
        answer.map_err(|error| malformed(&error).into())
    }
}

impl<M: StateMachine, R: Runtime> NetTransferLeader<Types<M, R>> for PeerClient {
    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Types<M, R>>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Types<M, R>>, RPCError<Types<M, R>>> {
        let body = Body::Transfer(wire::transfer_to_proto(&request));
        match self.call(body, option.soft_ttl()).await {
            Ok(Answer::Transfer(answer)) => wire::transfer_answer_from_proto(&request, answer)
                .map_err(|error| malformed(&error)),
            Ok(_) => Err(self.to_rpc(RPCTypes::TransferLeader, unexpected_answer())),
            Err(error) => Err(self.to_rpc(RPCTypes::TransferLeader, error)),
        }
    }
}

impl<M: StateMachine, R: Runtime> NetBackoff<Types<M, R>> for PeerClient {
    fn backoff(&self) -> Option<Backoff> {
        None
    }
}
