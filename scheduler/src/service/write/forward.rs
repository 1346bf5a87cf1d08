//! Forwarding of writes from a follower to the leader, many in one message.

use std::sync::Arc;
use std::time::Duration;

use muster_proto::v1::write::Kind;
use muster_proto::v1::write_result::Kind as Outcome;
use muster_proto::{status, v1};
use muster_raft_store::Peer;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};
use tonic::{Code, Status};

use crate::service::peer::peer_pool::PeerPool;
use crate::service::write::UNKNOWN_OUTCOME;
use crate::service::write::leaders::Leaders;

/// Writes in one message to the leader.
pub(crate) const FORWARDED_WRITES_MAX: usize = 1_024;
/// Bytes of writes in one message to the leader, unless a single write is larger.
const FORWARDED_BYTES_MAX: usize = 4 << 20;
/// Writes that may wait to be forwarded.
const FORWARD_QUEUE_MAX: usize = 16_384;
/// Unanswered messages to the leader.
const FORWARDS_IN_FLIGHT_MAX: usize = 16;
/// Retry delay for a caller.
const RETRY: Duration = Duration::from_millis(20);

/// A write for the leader.
pub(super) struct Forward {
    pub(super) leader: Peer,
    pub(super) write: Kind,
    /// Whether the old leader answers it after another replica leads.
    pub(super) is_handover: bool,
    pub(super) deadline: Instant,
}

/// A write that waits for its answer.
struct Waiting {
    forward: Forward,
    reply: oneshot::Sender<Result<Outcome, Status>>,
}

/// Forwards writes to the leader.
#[derive(Clone)]
pub(crate) struct Forwarder {
    queue: mpsc::Sender<Waiting>,
}

impl Forwarder {
    /// Starts the task that batches and sends; it ends with the last clone.
    pub(crate) fn start(peers: Arc<PeerPool>, leaders: Leaders) -> Self {
        let (queue, waiting) = mpsc::channel(FORWARD_QUEUE_MAX);
        tokio::spawn(pack(peers, leaders, waiting));
        Self { queue }
    }

    /// Forwards a write to the leader.
    pub(super) async fn forward(&self, forward: Forward) -> Result<Outcome, Status> {
        let (reply, answer) = oneshot::channel();
        let deadline = forward.deadline;
        self.queue
            .try_send(Waiting { forward, reply })
            .map_err(|error| match error {
                TrySendError::Full(_) => status::retryable(
                    Code::ResourceExhausted,
                    "OVERLOADED",
                    &format!("{FORWARD_QUEUE_MAX} writes wait to be forwarded (FORWARD_QUEUE_MAX)"),
                    &[],
                    RETRY,
                ),
                TrySendError::Closed(_) => unknown("this replica is stopping"),
            })?;
        match timeout_at(deadline, answer).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(unknown("this replica is stopping")),
            Err(_) => Err(unknown("the leader did not answer before the timeout")),
        }
    }
}

/// Error of a write with an unknown effect.
pub(crate) fn unknown(message: &str) -> Status {
    status::retryable(Code::Unavailable, UNKNOWN_OUTCOME, message, &[], RETRY)
}

async fn pack(peers: Arc<PeerPool>, leaders: Leaders, mut waiting: mpsc::Receiver<Waiting>) {
    let in_flight = Arc::new(Semaphore::new(FORWARDS_IN_FLIGHT_MAX));
    let mut received = Vec::new();
    while waiting.recv_many(&mut received, FORWARDED_WRITES_MAX).await > 0 {
        for (leader, writes) in batches(received.drain(..)) {
            let Ok(permit) = Arc::clone(&in_flight).acquire_owned().await else {
                return;
            };
            let (peers, leaders) = (Arc::clone(&peers), leaders.clone());
            tokio::spawn(async move {
                send(&peers, &leaders, &leader, writes).await;
                drop(permit);
            });
        }
    }
}

/// Runs of writes to the same leader, each within the limits of one message.
fn batches(writes: impl Iterator<Item = Waiting>) -> Vec<(Peer, Vec<Waiting>)> {
    let mut batches: Vec<(Peer, Vec<Waiting>)> = Vec::new();
    let mut bytes = 0;
    for waiting in writes {
        let size = waiting.forward.write.encoded_len();
        match batches.last_mut() {
            Some((leader, batch))
                if *leader == waiting.forward.leader && bytes + size <= FORWARDED_BYTES_MAX =>
            {
                bytes += size;
                batch.push(waiting);
            }
            _ => {
                bytes = size;
                batches.push((waiting.forward.leader.clone(), vec![waiting]));
            }
        }
    }
    batches
}

async fn send(peers: &PeerPool, leaders: &Leaders, leader: &Peer, writes: Vec<Waiting>) {
    let mut kinds = Vec::with_capacity(writes.len());
    let mut waiters = Vec::with_capacity(writes.len());
    let mut deadline = Instant::now();
    // A transfer of leadership is answered once another replica leads: a change of leader seen here is no
    // reason to give up on it.
    let mut hands_over = false;
    for Waiting { forward, reply } in writes {
        deadline = deadline.max(forward.deadline);
        hands_over |= forward.is_handover;
        kinds.push(v1::Write {
            kind: Some(forward.write),
        });
        waiters.push(reply);
    }
    let mut request = tonic::Request::new(v1::ForwardWritesRequest {
        writes: kinds,
        cluster_id: Some(peers.cluster_id().to_owned()),
        to_replica_id: Some(leader.id),
    });
    request.set_timeout(deadline.saturating_duration_since(Instant::now()));
    let answered = match peers.client(&leader.address) {
        Ok(mut client) => tokio::select! {
            biased;
            answered = client.forward_writes(request) => answered,
            () = leaders.changed_from(Some(&leader.address)), if !hands_over => {
                Err(unknown("another replica leads now"))
            }
        },
        Err(status) => Err(status),
    };
    match answered {
        Ok(response) => {
            let mut results = response.into_inner().results.into_iter();
            for waiter in waiters {
                let result = results.next().and_then(|result| result.kind);
                // The caller may be gone and needs no answer.
                drop(waiter.send(outcome(result)));
            }
        }
        Err(status) => {
            let status = status_for_caller(status);
            for waiter in waiters {
                drop(waiter.send(Err(status.clone())));
            }
        }
    }
}

/// Passes the leader's refusals through unchanged, including that it is not the intended leader. If the
/// connection broke or timed out, the writes may have taken effect.
fn status_for_caller(status: Status) -> Status {
    match status.code() {
        Code::Unavailable if !status.details().is_empty() => status,
        Code::InvalidArgument | Code::ResourceExhausted => status,
        _ => unknown(&format!("the leader did not answer: {}", status.message())),
    }
}

fn outcome(result: Option<Outcome>) -> Result<Outcome, Status> {
    match result {
        Some(Outcome::Error(error)) => Err(Status::with_details(
            Code::from_i32(error.code),
            error.message,
            error.details,
        )),
        Some(outcome) => Ok(outcome),
        None => Err(unknown("the leader's answer is incomplete")),
    }
}

/// Converts a status for the way back to the follower.
pub(crate) fn error_to_wire(status: &Status) -> v1::WriteError {
    v1::WriteError {
        code: status.code() as i32,
        message: status.message().to_owned(),
        details: status.details().to_vec().into(),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use muster_model::ids::ReplicaId;
    use muster_proto::status::{ErrorReport, FOREIGN_CLUSTER};

    use super::*;
    use crate::service::peer::recipient::{Recipient, is_undone};

    #[test]
    fn a_refusal_by_another_cluster_means_not_done_and_a_broken_connection_means_unknown() {
        let recipient = Recipient {
            cluster_id: Some("lab"),
            replica_id: Some(1),
        };
        let refused = recipient.check("other", ReplicaId(1)).unwrap_err();
        let refused = ErrorReport::of(&status_for_caller(refused)).reason;
        assert_eq!(refused, FOREIGN_CLUSTER);
        assert!(is_undone(&refused));
        let broken = status_for_caller(Status::unavailable("connection reset"));
        let broken = ErrorReport::of(&broken).reason;
        assert_eq!(broken, UNKNOWN_OUTCOME);
        assert!(!is_undone(&broken));
    }
}
