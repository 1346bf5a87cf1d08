//! Messages between the leader loop and the streams of workers.
//!
//! A stream's task turns the wire into [`LeaderInput`]s and [`ToWorker`]s into the wire; the loop decides
//! which stream represents which host.

use std::sync::Arc;

use muster_model::command::HostRegistration;
use muster_model::desired::DesiredState;
use muster_model::heartbeat::Heartbeat;
use muster_model::ids::{HostId, LeadershipEpoch};
use muster_model::rejection::Rejection;
use muster_model::timings::Timings;
use muster_proto::v1;
use muster_raft_store::{Force, MemberChange, MembershipError, Peer};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Messages queued to one worker; what does not fit is sent again from the state.
pub const TO_WORKER_MAX: usize = 256;
/// Inputs queued to the leader loop; streams wait beyond that.
pub const LEADER_INPUTS_MAX: usize = 16_384;

/// A worker's stream, numbered over the life of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// Input of the leader loop from a stream.
#[derive(Debug)]
pub enum LeaderInput {
    /// A worker registers on a new stream.
    Hello {
        /// The stream.
        session: SessionId,
        /// Properties and inventory of the host.
        registration: Arc<HostRegistration>,
        /// Newest leadership that the worker has accepted.
        leader_seen: LeadershipEpoch,
        /// Whether the worker holds prepared tasks until their gang is released.
        can_hold: bool,
        /// Sender to the worker.
        to_worker: mpsc::Sender<ToWorker>,
    },
    /// A heartbeat.
    Heartbeat {
        /// The stream.
        session: SessionId,
        /// Content of the heartbeat.
        heartbeat: Heartbeat,
        /// Time of arrival; the wait for the acknowledgement is measured from it.
        arrived: Instant,
    },
    /// The stream has ended.
    Closed {
        /// The stream.
        session: SessionId,
    },
    /// An admin requests a change of the replicas.
    ChangeReplicas(ReplicaChange),
}

/// A change of the replicas, in one step, and the recipient of its result.
#[derive(Debug)]
pub struct ReplicaChange {
    /// The requested change.
    pub change: MemberChange,
    /// Whether the safety checks are overridden.
    pub force: Force,
    /// Receives the result.
    pub reply: oneshot::Sender<Result<ReplicasChanged, ChangeError>>,
}

/// Result of a change of the replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicasChanged {
    /// False if the replicas were already as requested.
    pub changed: bool,
    /// Warning for the admin about the remaining replicas.
    pub warning: Option<String>,
}

/// Reason why the replicas were not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// Another change is in progress.
    #[error(
        "{under_way} is in progress: try again when it is done (`muster cluster members` shows its progress)"
    )]
    Busy {
        /// Description of that change.
        under_way: String,
    },
    /// The id was used by an earlier replica.
    #[error(
        "replica id {id} was used before, and ids are never reused: choose one above {highest}"
    )]
    UsedId {
        /// The id.
        id: u64,
        /// The highest id ever used.
        highest: u64,
    },
    /// A new replica of an older build could not read the log.
    #[error(
        "replica {id} reads commands up to format {reads}, but the log has format {needed}: upgrade it first"
    )]
    OldBuild {
        /// Id of the replica.
        id: u64,
        /// Newest format that it reads.
        reads: u8,
        /// Format that it would have to read.
        needed: u8,
    },
    /// The future voters do not answer the leader.
    #[error(
        "no majority of the future voters stored the heartbeat times within {limit_ms} ms (CHANGE_MS_MAX)"
    )]
    NotTakenOver {
        /// The limit.
        limit_ms: u64,
    },
    /// The replication refused the change or failed.
    #[error(transparent)]
    Membership(#[from] MembershipError),
}

/// Message to a worker.
#[derive(Debug)]
pub enum ToWorker {
    /// The host is registered.
    Welcome {
        /// Id of the host.
        host: HostId,
        /// This leadership.
        leader: LeadershipEpoch,
        /// Periods of the heartbeat protocol.
        timings: Timings,
        /// Addresses of all replicas: all addresses in the worker's settings may be outdated.
        replicas: Vec<String>,
    },
    /// The replicas have changed.
    Replicas(Vec<String>),
    /// Desired state of the host.
    Desired(Box<DesiredState>),
    /// A heartbeat is acknowledged: a majority has stored it.
    HeartbeatAck {
        /// This leadership.
        leader: LeadershipEpoch,
        /// Sequence number of the heartbeat.
        sequence: u64,
        /// Heartbeat interval in milliseconds from now on; `None` for the interval of the welcome.
        next_heartbeat_ms: Option<u64>,
    },
    /// Requests output; the message is sent as is.
    Logs(Box<v1::LogRequest>),
    /// Requests an exec session; the message is sent as is.
    Exec(Box<v1::ExecOrder>),
    /// The answers to this request are no longer read.
    LogCancel {
        /// Id of the request.
        id: u64,
    },
    /// Injects a fault on a host with simulated GPUs.
    Inject(Box<v1::InjectFault>),
    /// Requests debug information about the worker.
    Debug(Box<v1::DebugOrder>),
    /// The last message: the stream ends.
    Close(CloseReason),
}

/// Reason why the leader ends a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The registration was refused.
    Rejected(Rejection),
    /// A newer stream represents the same worker.
    Replaced,
    /// This replica does not lead.
    NotLeader {
        /// The leader, if known.
        leader: Option<Peer>,
    },
    /// The registration could not be proposed now.
    Busy,
}
