//! What a replica knows of itself and, as leader, of the others.

use crate::peer::Peer;

/// How far a follower or learner is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowerStatus {
    /// Its id.
    pub id: u64,
    /// Last log index known to be on its disk.
    pub matched: Option<u64>,
    /// Entries it is behind the leader's log.
    pub lag_entries: u64,
}

/// A snapshot of a replica's state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// This replica's id.
    pub replica_id: u64,
    /// Members that vote.
    pub voters: Vec<Peer>,
    /// Members that only receive.
    pub learners: Vec<Peer>,
    /// Whether a change of voters has not finished.
    pub membership_is_changing: bool,
    /// The leader, where one is known.
    pub leader: Option<Peer>,
    /// Whether this replica leads.
    pub is_leader: bool,
    /// The Raft term.
    pub term: u64,
    /// The vote given: term, candidate, and whether the candidate won.
    pub vote: String,
    /// Index of the last log entry.
    pub last_log_index: Option<u64>,
    /// Index of the last applied entry.
    pub applied_index: Option<u64>,
    /// Index that the newest snapshot covers.
    pub snapshot_index: Option<u64>,
    /// Index up to which the log was removed.
    pub purged_index: Option<u64>,
    /// On the leader: the other members.
    pub followers: Vec<FollowerStatus>,
    /// Why the replica stopped, if it did.
    pub stopped: Option<String>,
}
