//! One attempt to open a session with one replica.

use std::time::Duration;

use muster_model::ids::{HostId, LeadershipEpoch};
use muster_model::limits::WORKER_MESSAGE_BYTES_MAX;
use muster_model::timings::Timings;
use muster_proto::status::ErrorReport;
use muster_proto::v1;
use muster_proto::v1::leader_message::Kind as LeaderKind;
use muster_proto::v1::worker_message::Kind as WorkerKind;
use muster_proto::v1::worker_service_client::WorkerServiceClient;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use crate::limits::OUTBOX_MAX;

/// Timeout of a replica's answer: a leader commits the host's registration meanwhile.
const ANSWER_MAX: Duration = Duration::from_secs(3);

/// A session that a leader accepted.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) address: String,
    pub(super) host: HostId,
    pub(super) leader: LeadershipEpoch,
    pub(super) timings: Timings,
    /// Addresses of all replicas known to the leader; empty from an older build.
    pub(super) replicas: Vec<String>,
    /// The cluster's name; empty from an older build.
    pub(super) cluster_id: String,
    pub(super) outbox: mpsc::Sender<v1::WorkerMessage>,
    pub(super) messages: Streaming<v1::LeaderMessage>,
}

/// Reasons why there is no session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// The replica is not the leader.
    #[error("the replica is not the leader; leader: {leader:?}")]
    NotLeader {
        /// The address of the leader, if known.
        leader: Option<String>,
    },
    /// It leads, but with a leadership that is known to be over.
    #[error("the replica's leadership {found} is older than {newest}")]
    Deposed {
        /// The replica's leadership.
        found: LeadershipEpoch,
        /// The newest accepted leadership.
        newest: LeadershipEpoch,
    },
    /// The leader rejects this host.
    #[error("rejected: {message} ({reason})")]
    Rejected {
        /// Machine-readable reason.
        reason: String,
        /// Message for operators.
        message: String,
        /// Whether a later attempt may succeed.
        retry: bool,
    },
    /// It cannot be reached, or its answer is invalid.
    #[error("no answer: {0}")]
    Unreachable(String),
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        let report = ErrorReport::of(&status);
        if report.reason == muster_proto::status::NOT_LEADER {
            Self::NotLeader {
                leader: report.leader().map(ToOwned::to_owned),
            }
        } else {
            Self::Unreachable(status.message().to_owned())
        }
    }
}

/// Sends a greeting to a replica and waits for its welcome.
pub(super) async fn attempt(
    address: String,
    channel: Channel,
    hello: v1::Hello,
) -> Result<Opened, Refusal> {
    let newest = LeadershipEpoch(hello.leadership_epoch);
    let answered = tokio::time::timeout(ANSWER_MAX, send_hello(channel, hello)).await;
    let (outbox, messages, first) =
        answered.map_err(|_| Refusal::Unreachable("no answer in time".to_owned()))??;
    match first {
        LeaderKind::Welcome(welcome) => {
            let leader = LeadershipEpoch(welcome.leadership_epoch);
            if leader < newest {
                return Err(Refusal::Deposed {
                    found: leader,
                    newest,
                });
            }
            let timings = welcome
                .timings
                .map_or_else(|| Ok(Timings::default()), Timings::try_from)
                .map_err(|error| Refusal::Unreachable(error.to_string()))?;
            Ok(Opened {
                address,
                host: HostId(welcome.host_id),
                leader,
                timings,
                replicas: welcome.replica_addresses,
                cluster_id: welcome.cluster_id,
                outbox,
                messages,
            })
        }
        LeaderKind::Rejected(rejected) => Err(Refusal::Rejected {
            reason: rejected.reason,
            message: rejected.message,
            retry: rejected.retry,
        }),
        _ => Err(Refusal::Unreachable(
            "the first message is not a welcome".to_owned(),
        )),
    }
}

type SessionStream = (
    mpsc::Sender<v1::WorkerMessage>,
    Streaming<v1::LeaderMessage>,
    LeaderKind,
);

async fn send_hello(channel: Channel, hello: v1::Hello) -> Result<SessionStream, Refusal> {
    let (outbox, outgoing) = mpsc::channel(OUTBOX_MAX);
    let hello = v1::WorkerMessage {
        kind: Some(WorkerKind::Hello(hello)),
    };
    if outbox.try_send(hello).is_err() {
        return Err(Refusal::Unreachable("the outbox is full".to_owned()));
    }
    let mut client = WorkerServiceClient::new(channel)
        .max_decoding_message_size(WORKER_MESSAGE_BYTES_MAX)
        .max_encoding_message_size(WORKER_MESSAGE_BYTES_MAX);
    let mut messages = client
        .session(ReceiverStream::new(outgoing))
        .await?
        .into_inner();
    let first = messages
        .message()
        .await?
        .and_then(|message| message.kind)
        .ok_or_else(|| Refusal::Unreachable("the stream ended".to_owned()))?;
    Ok((outbox, messages, first))
}
