//! Conversions between openraft's requests and answers and protobuf messages.

use bytes::Bytes;
use muster_proto::raft::v1 as proto;
use openraft::raft::{
    AppendEntriesRequest, StreamAppendError, TransferLeaderError, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};

use crate::apply::state_machine::{DecodeError, StateMachine};
use crate::sim::{ProductionRuntime, Runtime};
use crate::storage::codec::{convert, record};
use crate::types::{LogId, Types};

/// A follower's result of one append: the matching position, or the reason that none matches.
pub(super) type AppendResult<M, R> = Result<Option<LogId>, StreamAppendError<Types<M, R>>>;

pub(super) fn vote_request_to_proto<M: StateMachine, R: Runtime>(
    request: &VoteRequest<Types<M, R>>,
) -> proto::VoteRequest {
    proto::VoteRequest {
        vote: Some(convert::vote_to_proto(&request.vote)),
        last: request.last_log_id.as_ref().map(convert::log_id_to_proto),
        leadership_transfer: request.leadership_transfer,
    }
}

pub(super) fn vote_request_from_proto<M: StateMachine, R: Runtime>(
    request: proto::VoteRequest,
) -> Result<VoteRequest<Types<M, R>>, DecodeError> {
    Ok(VoteRequest {
        vote: convert::vote_from_proto(request.vote)?,
        last_log_id: convert::optional_log_id(request.last)?,
        leadership_transfer: request.leadership_transfer,
    })
}

pub(super) fn vote_response_to_proto<M: StateMachine, R: Runtime>(
    response: &VoteResponse<Types<M, R>>,
) -> proto::VoteResponse {
    proto::VoteResponse {
        vote: Some(convert::vote_to_proto(&response.vote)),
        granted: response.vote_granted,
        last: response.last_log_id.as_ref().map(convert::log_id_to_proto),
    }
}

pub(super) fn vote_response_from_proto<M: StateMachine, R: Runtime>(
    response: proto::VoteResponse,
) -> Result<VoteResponse<Types<M, R>>, DecodeError> {
    Ok(VoteResponse {
        vote: convert::vote_from_proto(response.vote)?,
        vote_granted: response.granted,
        last_log_id: convert::optional_log_id(response.last)?,
    })
}

pub(super) fn append_to_proto<M: StateMachine, R: Runtime>(
    request: &AppendEntriesRequest<Types<M, R>>,
) -> proto::AppendRequest {
    proto::AppendRequest {
        vote: Some(convert::vote_to_proto(&request.vote)),
        previous: request.prev_log_id.as_ref().map(convert::log_id_to_proto),
        entries: request
            .entries
            .iter()
            .map(|entry| Bytes::from(record::encode(entry)))
            .collect(),
        commit: request.leader_commit.as_ref().map(convert::log_id_to_proto),
    }
}

pub(super) fn append_from_proto<M: StateMachine, R: Runtime>(
    request: proto::AppendRequest,
) -> Result<AppendEntriesRequest<Types<M, R>>, DecodeError> {
    Ok(AppendEntriesRequest {
        vote: convert::vote_from_proto(request.vote)?,
        prev_log_id: convert::optional_log_id(request.previous)?,
        entries: request
            .entries
            .into_iter()
            .map(record::decode)
            .collect::<Result<Vec<_>, _>>()?,
        leader_commit: convert::optional_log_id(request.commit)?,
    })
}

pub(super) fn append_result_to_proto<M: StateMachine, R: Runtime>(
    result: &AppendResult<M, R>,
) -> proto::AppendResponse {
    use proto::append_response::Result as Stored;
    let result = match result {
        Ok(matched) => Stored::Matched(proto::Matched {
            id: matched.as_ref().map(convert::log_id_to_proto),
        }),
        Err(StreamAppendError::Conflict(at)) => Stored::Conflict(convert::log_id_to_proto(at)),
        Err(StreamAppendError::HigherVote(vote)) => {
            Stored::HigherVote(convert::vote_to_proto(vote))
        }
    };
    proto::AppendResponse {
        result: Some(result),
    }
}

pub(super) fn append_result_from_proto<M: StateMachine, R: Runtime>(
    response: proto::AppendResponse,
) -> Result<AppendResult<M, R>, DecodeError> {
    use proto::append_response::Result as Stored;
    match response.result {
        Some(Stored::Matched(matched)) => Ok(Ok(convert::optional_log_id(matched.id)?)),
        Some(Stored::Conflict(at)) => Ok(Err(StreamAppendError::Conflict(
            convert::log_id_from_proto(at)?,
        ))),
        Some(Stored::HigherVote(vote)) => Ok(Err(StreamAppendError::HigherVote(
            convert::vote_from_proto(Some(vote))?,
        ))),
        None => Err(DecodeError::malformed("an append answer has no result")),
    }
}

pub(super) fn transfer_to_proto<M: StateMachine, R: Runtime>(
    request: &TransferLeaderRequest<Types<M, R>>,
) -> proto::TransferRequest {
    proto::TransferRequest {
        from_leader: Some(convert::vote_to_proto(request.from_leader())),
        to: *request.to_node_id(),
        last: request.last_log_id().map(convert::log_id_to_proto),
    }
}

pub(super) fn transfer_from_proto<M: StateMachine, R: Runtime>(
    request: proto::TransferRequest,
) -> Result<TransferLeaderRequest<Types<M, R>>, DecodeError> {
    Ok(TransferLeaderRequest::new(
        convert::vote_from_proto(request.from_leader)?,
        request.to,
        convert::optional_log_id(request.last)?,
    ))
}

pub(super) fn transfer_answer_to_proto<M: StateMachine, R: Runtime>(
    answer: &TransferLeaderResponse<Types<M, R>>,
) -> proto::TransferResponse {
    let mut response = proto::TransferResponse::default();
    if let Err(error) = answer {
        response.refused = error.to_string();
        match error {
            TransferLeaderError::VoteChanged { actual, .. } => {
                response.vote = Some(convert::vote_to_proto(actual));
            }
            TransferLeaderError::LogNotFlushed { actual, .. } => {
                response.flushed = actual.as_ref().map(convert::log_id_to_proto);
            }
        }
    }
    response
}

pub(super) fn transfer_answer_from_proto<M: StateMachine, R: Runtime>(
    request: &TransferLeaderRequest<Types<M, R>>,
    response: proto::TransferResponse,
) -> Result<TransferLeaderResponse<Types<M, R>>, DecodeError> {
    if response.refused.is_empty() {
        return Ok(Ok(()));
    }
    let error = match response.vote {
        Some(vote) => TransferLeaderError::VoteChanged {
            expected: *request.from_leader(),
            actual: convert::vote_from_proto(Some(vote))?,
        },
        None => TransferLeaderError::LogNotFlushed {
            expected: request.last_log_id().copied(),
            actual: convert::optional_log_id(response.flushed)?,
        },
    };
    Ok(Err(error))
}

/// Decodes a request as [`super::Server`] does; returns it as this build encodes it.
pub(crate) fn reread<M: StateMachine>(
    request: proto::PeerRequest,
) -> Result<proto::PeerRequest, DecodeError> {
    use proto::peer_request::Body;
    type Of = ProductionRuntime;
    let again = |vote| {
        let vote = vote_request_from_proto::<M, Of>(vote)?;
        Ok::<_, DecodeError>(vote_request_to_proto(&vote))
    };
    let body = match request.body {
        Some(Body::Vote(vote)) => Some(Body::Vote(again(vote)?)),
        Some(Body::PreVote(vote)) => Some(Body::PreVote(again(vote)?)),
        Some(Body::Append(append)) => {
            let append = append_from_proto::<M, Of>(append)?;
            Some(Body::Append(append_to_proto(&append)))
        }
        Some(Body::Transfer(transfer)) => {
            let transfer = transfer_from_proto::<M, Of>(transfer)?;
            Some(Body::Transfer(transfer_to_proto(&transfer)))
        }
        Some(Body::SnapshotChunk(chunk)) => {
            convert::vote_from_proto(chunk.vote)?;
            convert::optional_log_id(chunk.last)?;
            let membership = convert::stored_membership_from_proto(chunk.membership)?;
            Some(Body::SnapshotChunk(proto::SnapshotChunk {
                membership: Some(convert::stored_membership_to_proto(&membership)),
                ..chunk
            }))
        }
        other => other,
    };
    Ok(proto::PeerRequest { body, ..request })
}
