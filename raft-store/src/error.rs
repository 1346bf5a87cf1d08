//! Errors of the public operations.

use std::io;
use std::path::PathBuf;

use crate::config::ConfigError;
use crate::member_change::PROMOTION_LAG_ENTRIES_MAX;
use crate::peer::Peer;
use crate::transfer::{SUCCESSOR_HEARTBEATS_MAX, SUCCESSOR_LAG_ENTRIES_MAX};

/// Why a proposal has no outcome.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// This replica does not lead; nothing was written.
    #[error("this replica is not the leader")]
    NotLeader {
        /// Who leads, where known.
        leader: Option<Peer>,
    },
    /// Leadership changed in between: the commands may or may not take effect, once.
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
    /// A command or the whole proposal is too big; nothing was written.
    #[error("{bytes} bytes exceed the limit of {limit} ({name})")]
    TooLarge {
        /// Bytes of the command or of the proposal.
        bytes: usize,
        /// The limit.
        limit: usize,
        /// The limit's name: `command_bytes_max` or `proposal_bytes_max`.
        name: &'static str,
    },
    /// The proposal has more commands than one log entry may; nothing was written.
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

/// Why a linearizable read cannot be served here and now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// No leader confirmed the read position.
    #[error("no leader confirmed the read position")]
    NotLeader {
        /// Who leads, where known.
        leader: Option<Peer>,
    },
    /// The leader could not reach a majority in time.
    #[error("the read position was not confirmed by a majority in time: {0}")]
    NoQuorum(String),
    /// The replica has stopped.
    #[error("the replica has stopped")]
    Stopped,
}

/// Why the group's membership or leadership was not changed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MembershipError {
    /// Only the leader changes members.
    #[error("this replica is not the leader")]
    NotLeader {
        /// Who leads, where known.
        leader: Option<Peer>,
    },
    /// The group has members already.
    #[error("the group is already initialized")]
    AlreadyInitialized,
    /// A replica that was to found a new group with this one has given a vote or holds a log:
    /// the group exists, and this replica's data is missing or new.
    #[error(
        "{peer} belongs to a group already, so no new one is founded: restore this replica's data \
         directory, or have that group remove this replica and add it again"
    )]
    PeerHasGroup {
        /// The replica that belongs to a group.
        peer: Peer,
    },
    /// The change breaks a rule of membership changes.
    #[error("the change is refused: {0}")]
    Refused(String),
    /// The group has no such member.
    #[error("replica {id} is no member of the group")]
    UnknownMember {
        /// The id that no member has.
        id: u64,
    },
    /// Leadership would be handed to a voter that may be dead.
    #[error(
        "replica {to} {}: name another replica, or bring it back first",
        silence(*heard_ago_ms, *silence_ms_max)
    )]
    SuccessorSilent {
        /// The voter that was to lead.
        to: u64,
        /// Milliseconds since it was heard; none if this leader has heard nothing of it.
        heard_ago_ms: Option<u64>,
        /// The limit: [`SUCCESSOR_HEARTBEATS_MAX`] heartbeats, in milliseconds.
        silence_ms_max: u64,
    },
    /// Leadership would be handed to a voter that could not lead for a while.
    #[error(
        "replica {to} lacks {lag_entries} log entries, more than the {SUCCESSOR_LAG_ENTRIES_MAX} with which it may \
         take over (SUCCESSOR_LAG_ENTRIES_MAX): wait until it has caught up, or name another replica"
    )]
    SuccessorLags {
        /// The voter that was to lead.
        to: u64,
        /// Entries that it lacks.
        lag_entries: u64,
    },
    /// A change of voters could not be committed now: no majority of those before it, or after it, is heard.
    #[error(
        "of the voters {} only {heard} are heard, which is no majority: the change could not be committed. Bring one \
         back first",
        list(voters)
    )]
    VotersSilent {
        /// The voters before or after the change, ascending.
        voters: Vec<u64>,
        /// How many of them are heard.
        heard: usize,
    },
    /// A learner would vote that may be dead.
    #[error(
        "replica {id} {}: a replica that does not answer is made no voter; see whether it runs and is reached",
        learner_silence(*heard_ago_ms, *silence_ms_max)
    )]
    LearnerSilent {
        /// The learner.
        id: u64,
        /// Milliseconds since it was heard; none if this leader has heard nothing of it.
        heard_ago_ms: Option<u64>,
        /// The limit: [`SUCCESSOR_HEARTBEATS_MAX`] heartbeats, in milliseconds.
        silence_ms_max: u64,
    },
    /// A learner would vote that could not confirm anything for a while.
    #[error(
        "replica {id} lacks {lag_entries} log entries, more than the {PROMOTION_LAG_ENTRIES_MAX} with which it may vote \
         (PROMOTION_LAG_ENTRIES_MAX): wait until it has caught up"
    )]
    LearnerLags {
        /// The learner.
        id: u64,
        /// Entries that it lacks.
        lag_entries: u64,
    },
    /// Leadership was given up, and the successor did not take it. The others elect a leader.
    #[error("replica {to} did not take over: {}", whoever_leads(leader.as_ref()))]
    NotTaken {
        /// The voter that was to lead.
        to: u64,
        /// Who leads instead; none if nobody was elected in time (`peer_timeout_ms`).
        leader: Option<Peer>,
    },
    /// A member that must answer does not.
    #[error("{peer} does not answer: {detail}")]
    Unreachable {
        /// The silent member.
        peer: Peer,
        /// What went wrong.
        detail: String,
    },
    /// At a member's address somebody else answers.
    #[error(
        "{peer} is meant, and there answers {detail}: correct its cluster_id, its id or its address"
    )]
    Stranger {
        /// The member that was meant.
        peer: Peer,
        /// Who answers.
        detail: String,
    },
    /// Leadership changed in between: the change may or may not take effect.
    #[error("leadership changed before the outcome was known")]
    Unknown,
    /// The replica has stopped.
    #[error("the replica has stopped")]
    Stopped,
}

fn silence(heard_ago_ms: Option<u64>, silence_ms_max: u64) -> String {
    let limit = SUCCESSOR_HEARTBEATS_MAX;
    match heard_ago_ms {
        Some(ago_ms) => format!(
            "was heard {ago_ms} ms ago, longer than the {silence_ms_max} ms after which it may take over \
             ({limit} heartbeats)"
        ),
        None => format!(
            "has not been heard by this leader, as it must have been within {silence_ms_max} ms to take over \
             ({limit} heartbeats)"
        ),
    }
}

fn list(ids: &[u64]) -> String {
    let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
    ids.join(", ")
}

fn learner_silence(heard_ago_ms: Option<u64>, silence_ms_max: u64) -> String {
    match heard_ago_ms {
        Some(ago_ms) => {
            format!(
                "was heard {ago_ms} ms ago, longer than the {silence_ms_max} ms within which it must be"
            )
        }
        None => "has not been heard by this leader".to_owned(),
    }
}

fn whoever_leads(leader: Option<&Peer>) -> String {
    leader.map_or_else(
        || {
            "nobody leads yet, and nothing is written until a majority of the replicas has elected somebody"
                .to_owned()
        },
        |peer| format!("{peer} was elected instead"),
    )
}

/// Why a replica does not start. It has changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A setting cannot work.
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
    /// A restore or a recovery was cut off while its data took its place.
    #[error(
        "a restore or a recovery of {directory} was cut off: run the same command again before the replica starts"
    )]
    HalfRefounded {
        /// The directory.
        directory: PathBuf,
    },
    /// The directory belongs to another group.
    #[error(
        "the data belongs to cluster {found:?}, this replica is configured for {expected:?}; \
         correct cluster_id or choose another data directory"
    )]
    ForeignCluster {
        /// The cluster id on disk.
        found: String,
        /// The configured one.
        expected: String,
    },
    /// The directory belongs to another replica.
    #[error(
        "the data belongs to replica {found}, this replica is configured as {expected}; \
         correct replica_id or choose another data directory"
    )]
    WrongReplica {
        /// The replica id on disk.
        found: u64,
        /// The configured one.
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
    /// A record does not match its checksum or structure.
    #[error(
        "{what} is corrupt: {detail}; this replica cannot vouch for its log any more: remove it \
         from the group, empty its data directory and add it again as a learner"
    )]
    Corrupt {
        /// The file or key.
        what: String,
        /// What is wrong about it.
        detail: String,
    },
    /// The disk refused an operation.
    #[error("{operation} failed")]
    Disk {
        /// What was tried.
        operation: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The Raft engine refused to start on what it found.
    #[error("replication could not start: {0}")]
    Engine(String),
}

impl OpenError {
    /// Sorts what a decoder found wrong with `what`.
    pub(crate) fn from_decode(what: String, error: crate::state_machine::DecodeError) -> Self {
        use crate::state_machine::DecodeError;
        match error {
            DecodeError::NewerVersion { found, supported } => Self::NewerFormat {
                what,
                found,
                supported,
            },
            DecodeError::Malformed(detail) => Self::Corrupt { what, detail },
        }
    }
}
