//! Errors of the public operations.

use std::io;
use std::path::PathBuf;

use crate::member::member_change::PROMOTION_LAG_ENTRIES_MAX;
use crate::member::peer::Peer;
use crate::member::transfer::{SUCCESSOR_HEARTBEATS_MAX, SUCCESSOR_LAG_ENTRIES_MAX};
use crate::replica::config::ConfigError;

/// Error of a proposal without an outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// This replica is not the leader; nothing was written.
    #[error("this replica is not the leader")]
    NotLeader {
        /// The leader, if known.
        leader: Option<Peer>,
    },
    /// Leadership changed meanwhile: the commands may or may not take effect, at most once.
    #[error(
        "leadership changed before the outcome was known; the commands may or may not take effect"
    )]
    Unknown,
    /// The queue is full; nothing was written.
    #[error("more than {limit} proposals wait (queued_proposals_max)")]
    Overloaded {
        /// The limit `queued_proposals_max`.
        limit: usize,
    },
    /// A command or the whole proposal is too large; nothing was written.
    #[error("{bytes} bytes exceed the limit of {limit} ({name})")]
    TooLarge {
        /// Bytes of the command or of the proposal.
        bytes: usize,
        /// The limit.
        limit: usize,
        /// The limit's name: `command_bytes_max` or `proposal_bytes_max`.
        name: &'static str,
    },
    /// The proposal has more commands than one log entry may hold; nothing was written.
    #[error("a proposal has {commands} commands, the limit is {limit} (entry_commands_max)")]
    TooMany {
        /// Commands of the proposal.
        commands: usize,
        /// The limit `entry_commands_max`.
        limit: usize,
    },
    /// The replica has stopped.
    #[error("the replica has stopped")]
    Stopped,
}

/// Error of a linearizable read that cannot be served now by this replica.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No leader confirmed the read position.
    #[error("no leader confirmed the read position")]
    NotLeader {
        /// The leader, if known.
        leader: Option<Peer>,
    },
    /// The leader could not reach a majority in time.
    #[error("the read position was not confirmed by a majority in time: {0}")]
    NoQuorum(String),
    /// The replica has stopped.
    #[error("the replica has stopped")]
    Stopped,
}

/// Error of a failed change of membership or leadership.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// Only the leader changes members.
    #[error("this replica is not the leader")]
    NotLeader {
        /// The leader, if known.
        leader: Option<Peer>,
    },
    /// The group has members already.
    #[error("the group is already initialized")]
    AlreadyInitialized,
    /// A replica that was to form a new group with this one has cast a vote or holds a log: the group
    /// exists, and this replica's data is missing or new.
    #[error(
        "{peer} already belongs to a group, so no new group is created: restore this replica's data \
         directory, or have that group remove this replica and add it again"
    )]
    PeerHasGroup {
        /// The replica that belongs to a group.
        peer: Peer,
    },
    /// The change violates a rule of membership changes.
    #[error("the change is refused: {0}")]
    Refused(String),
    /// The group has no such member.
    #[error("replica {id} is not a member of the group")]
    UnknownMember {
        /// The unknown id.
        id: u64,
    },
    /// The intended successor may be down.
    #[error(
        "replica {to} {}: name another replica, or bring it back first",
        silence(*last_heartbeat_age_ms, *silence_ms_max)
    )]
    SuccessorUnresponsive {
        /// The intended successor.
        to: u64,
        /// Milliseconds since its last answer; none if it has never answered this leader.
        last_heartbeat_age_ms: Option<u64>,
        /// The limit: [`SUCCESSOR_HEARTBEATS_MAX`] heartbeats, in milliseconds.
        silence_ms_max: u64,
    },
    /// The intended successor lags too far behind to lead immediately.
    #[error(
        "replica {to} is {lag_entries} log entries behind, more than the {SUCCESSOR_LAG_ENTRIES_MAX} allowed to \
         take over (SUCCESSOR_LAG_ENTRIES_MAX): wait until it has caught up, or name another replica"
    )]
    SuccessorLags {
        /// The intended successor.
        to: u64,
        /// Log entries it is missing.
        lag_entries: u64,
    },
    /// A change of voters cannot be committed now: no majority of the voters before or after it is
    /// reachable.
    #[error(
        "only {responsive} of the voters {} answer, which is not a majority: the change could not be committed. Bring \
         one back first",
        list(voters)
    )]
    VotersSilent {
        /// The voters before or after the change, ascending.
        voters: Vec<u64>,
        /// Number of reachable ones.
        responsive: usize,
    },
    /// The learner to be promoted may be down.
    #[error(
        "replica {id} {}: a replica that does not answer cannot become a voter; check that it runs and is reachable",
        learner_silence(*last_heartbeat_age_ms, *silence_ms_max)
    )]
    LearnerSilent {
        /// The learner.
        id: u64,
        /// Milliseconds since its last answer; none if it has never answered this leader.
        last_heartbeat_age_ms: Option<u64>,
        /// The limit: [`SUCCESSOR_HEARTBEATS_MAX`] heartbeats, in milliseconds.
        silence_ms_max: u64,
    },
    /// The learner to be promoted lags too far behind to acknowledge new entries.
    #[error(
        "replica {id} is {lag_entries} log entries behind, more than the {PROMOTION_LAG_ENTRIES_MAX} allowed to vote \
         (PROMOTION_LAG_ENTRIES_MAX): wait until it has caught up"
    )]
    LearnerLags {
        /// The learner.
        id: u64,
        /// Log entries it is missing.
        lag_entries: u64,
    },
    /// Leadership was released, and the successor did not take it. The other replicas elect a leader.
    #[error("replica {to} did not take over: {}", describe_leader(leader.as_ref()))]
    NotTaken {
        /// The intended successor.
        to: u64,
        /// The actual leader; none if none was elected in time (`peer_timeout_ms`).
        leader: Option<Peer>,
    },
    /// A member whose answer is required does not answer.
    #[error("{peer} does not answer: {detail}")]
    Unreachable {
        /// The silent member.
        peer: Peer,
        /// Cause of the failure.
        detail: String,
    },
    /// Another replica answers at a member's address.
    #[error("expected {peer}, but {detail} answers: correct its cluster_id, its id or its address")]
    UnexpectedPeer {
        /// The expected member.
        peer: Peer,
        /// Identity of the replica that answered.
        detail: String,
    },
    /// Leadership changed meanwhile: the change may or may not take effect.
    #[error("leadership changed before the outcome was known")]
    Unknown,
    /// The replica has stopped.
    #[error("the replica has stopped")]
    Stopped,
}

fn silence(last_heartbeat_age_ms: Option<u64>, silence_ms_max: u64) -> String {
    let limit = SUCCESSOR_HEARTBEATS_MAX;
    match last_heartbeat_age_ms {
        Some(ago_ms) => format!(
            "last answered {ago_ms} ms ago, more than the {silence_ms_max} ms allowed to take over \
             ({limit} heartbeats)"
        ),
        None => format!(
            "has not answered this leader within the {silence_ms_max} ms required to take over \
             ({limit} heartbeats)"
        ),
    }
}

fn list(ids: &[u64]) -> String {
    let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
    ids.join(", ")
}

fn learner_silence(last_heartbeat_age_ms: Option<u64>, silence_ms_max: u64) -> String {
    match last_heartbeat_age_ms {
        Some(ago_ms) => {
            format!("last answered {ago_ms} ms ago, more than the {silence_ms_max} ms allowed")
        }
        None => "has not answered this leader".to_owned(),
    }
}

fn describe_leader(leader: Option<&Peer>) -> String {
    leader.map_or_else(
        || {
            "there is no leader yet, and nothing is written until a majority of the replicas has elected one"
                .to_owned()
        },
        |peer| format!("{peer} was elected instead"),
    )
}

/// Error of a replica that does not start. Nothing on disk was changed.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A setting is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another process holds the directory.
    #[error(
        "data directory {directory} is in use by another process; stop it or choose another directory"
    )]
    InUse {
        /// The directory.
        directory: PathBuf,
    },
    /// A restore or a recovery was interrupted while its data was moved into place.
    #[error(
        "a restore or recovery of {directory} was interrupted: run the same command again before starting the replica"
    )]
    UnfinishedRecovery {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory belongs to another group.
    #[error(
        "the data belongs to cluster {found:?}, this replica is configured for {expected:?}; \
         correct cluster_id or choose another data directory"
    )]
    ForeignCluster {
        /// Cluster id on disk.
        found: String,
        /// Configured cluster id.
        expected: String,
    },
    /// The directory belongs to another replica.
    #[error(
        "the data belongs to replica {found}, this replica is configured as {expected}; \
         correct replica_id or choose another data directory"
    )]
    WrongReplica {
        /// Replica id on disk.
        found: u64,
        /// Configured replica id.
        expected: u64,
    },
    /// The directory was written by a newer build.
    #[error(
        "{what} has format version {found}, the newest this build reads is {supported}; \
         start a newer build"
    )]
    NewerFormat {
        /// The file or key.
        what: String,
        /// The version found.
        found: u32,
        /// The newest version understood.
        supported: u32,
    },
    /// The data directory was written by a build whose format is no longer read.
    #[error("{what} has format version {found}, but this build reads {oldest} and newer")]
    OlderFormat {
        /// The file or key.
        what: String,
        /// The version found.
        found: u32,
        /// The oldest version understood.
        oldest: u32,
    },
    /// A record does not match its checksum or structure.
    #[error(
        "{what} is corrupt: {detail}; this replica cannot vouch for its log any more: remove it \
         from the group, empty its data directory and add it again as a learner"
    )]
    Corrupt {
        /// The file or key.
        what: String,
        /// Failed check.
        detail: String,
    },
    /// The disk refused an operation.
    #[error("{operation} failed")]
    Disk {
        /// The attempted operation.
        operation: String,
        /// Cause.
        #[source]
        source: io::Error,
    },
    /// The Raft engine rejected the stored data at startup.
    #[error("replication could not start: {0}")]
    Engine(String),
}

impl OpenError {
    /// Converts a decoding error of `what`.
    pub(crate) fn from_decode(
        what: String,
        error: crate::apply::state_machine::DecodeError,
    ) -> Self {
        use crate::apply::state_machine::DecodeError;
        match error {
            DecodeError::NewerVersion { found, supported } => Self::NewerFormat {
                what,
                found,
                supported,
            },
            DecodeError::OlderVersion { found, oldest } => Self::OlderFormat {
                what,
                found,
                oldest,
            },
            DecodeError::Malformed(detail) => Self::Corrupt { what, detail },
        }
    }
}
