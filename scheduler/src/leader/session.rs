//! What passes between the leader loop and the streams of workers.
//!
//! A stream's task turns the wire into [`LeaderInput`]s and [`ToWorker`]s into the wire; the loop owns
//! the decision which stream speaks for which host.

use std::sync::Arc;

use muster_model::beat::Beat;
use muster_model::command::HostRegistration;
use muster_model::desired::DesiredState;
use muster_model::ids::{HostId, LeadershipEpoch};
use muster_model::rejection::Rejection;
use muster_model::timings::Timings;
use muster_proto::v1;
use muster_raft_store::{Force, MemberChange, MembershipError, Peer};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// Messages to one worker that may wait; what does not fit is sent again from the state.
pub const TO_WORKER_MAX: usize = 256;
/// Inputs of the leader loop that may wait; streams that bring more wait themselves.
pub const LEADER_INPUTS_MAX: usize = 16_384;

/// A stream of a worker, counted over the life of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SessionId(pub u64);

/// What a stream brings to the leader loop.
#[derive(Debug)]
pub enum LeaderInput {
    /// A worker presents itself on a new stream.
    Hello {
        /// The stream.
        session: SessionId,
        /// What the host is and has.
        registration: Arc<HostRegistration>,
        /// Newest leadership that the worker has accepted.
        leader_seen: LeadershipEpoch,
        /// Whether it holds prepared tasks until their gang is released.
        can_hold: bool,
        /// The way back.
        to_worker: mpsc::Sender<ToWorker>,
    },
    /// A heartbeat.
    Beat {
        /// The stream.
        session: SessionId,
        /// What it says.
        beat: Beat,
        /// When it arrived: what it waits for its acknowledgement is counted from here.
        arrived: Instant,
    },
    /// The stream is gone.
    Closed {
        /// Which one.
        session: SessionId,
    },
    /// An admin wants other replicas.
    ChangeReplicas(ReplicaChange),
}

/// A change of the replicas, in one step, and who waits for it.
#[derive(Debug)]
pub struct ReplicaChange {
    /// What should change.
    pub change: MemberChange,
    /// Whether it goes beyond what is advisable.
    pub force: Force,
    /// Takes what became of it.
    pub reply: oneshot::Sender<Result<ReplicasChanged, ChangeError>>,
}

/// What became of a change of the replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicasChanged {
    /// False if all was so already.
    pub changed: bool,
    /// What an admin should know about what is left.
    pub warning: Option<String>,
}

/// Why the replicas were not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// One change after the other.
    #[error(
        "{under_way} is under way: try again when it is done (`muster cluster members` shows how far it is)"
    )]
    Busy {
        /// What is being done.
        under_way: String,
    },
    /// Replicas of another build could not read that it happened.
    #[error(
        "not all replicas are known to read what is written down about it: upgrade all of them, or start those that are down"
    )]
    NotYet,
    /// Its id was another replica's.
    #[error(
        "replica id {id} was used before, and an id is never used again: choose one above {highest}"
    )]
    UsedId {
        /// The id.
        id: u64,
        /// The highest that was ever used.
        highest: u64,
    },
    /// A new replica of an older build could not read the log.
    #[error(
        "replica {id} reads commands up to format {reads}, and the log has format {needed}: upgrade it first"
    )]
    OldBuild {
        /// Which one.
        id: u64,
        /// What it reads.
        reads: u8,
        /// What it would have to.
        needed: u8,
    },
    /// The voters to come do not answer the leader.
    #[error(
        "within {limit_ms} ms no majority of the voters to come has taken over when hosts were heard (CHANGE_MS_MAX)"
    )]
    NotTakenOver {
        /// The limit.
        limit_ms: u64,
    },
    /// The replication refuses or fails.
    #[error(transparent)]
    Membership(#[from] MembershipError),
}

/// What a stream carries to its worker.
#[derive(Debug)]
pub enum ToWorker {
    /// The host is registered.
    Welcome {
        /// Its id.
        host: HostId,
        /// This leadership.
        leader: LeadershipEpoch,
        /// Periods of the heartbeat protocol.
        timings: Timings,
        /// Addresses of all replicas: those of the worker's settings may all be replaced by now.
        replicas: Vec<String>,
    },
    /// The replicas are others now.
    Replicas(Vec<String>),
    /// What the host should run.
    Desired(Box<DesiredState>),
    /// A beat is acknowledged: a majority remembers it.
    BeatAck {
        /// This leadership.
        leader: LeadershipEpoch,
        /// Which beat.
        sequence: u64,
        /// Milliseconds between two beats from now on; none for those of the welcome.
        next_beat_ms: Option<u64>,
    },
    /// Asks for output, as the worker is told.
    Logs(Box<v1::LogRequest>),
    /// Asks for a command beside a task, as the worker is told.
    Exec(Box<v1::ExecOrder>),
    /// Nobody reads the answers to this request any more.
    LogCancel {
        /// Which request.
        id: u64,
    },
    /// Makes a host that simulates its GPUs see something.
    Inject(Box<v1::InjectFault>),
    /// Asks the worker about itself.
    Debug(Box<v1::DebugOrder>),
    /// The last message: the stream ends.
    Close(CloseReason),
}

/// Why the leader ends a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The registration was refused.
    Rejected(Rejection),
    /// A newer stream speaks for the same worker.
    Replaced,
    /// This replica does not lead (any more).
    NotLeader {
        /// Who does, where known.
        leader: Option<Peer>,
    },
    /// The registration could not be proposed now.
    Busy,
}
