//! Replicas of the cluster, as recorded from the Raft membership.

use serde::{Deserialize, Serialize};

use crate::ids::ReplicaId;

/// One replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaRecord {
    /// Id of the replica, never reused.
    pub id: ReplicaId,
    /// Address for other replicas, clients and workers: `host:port`.
    pub address: String,
    /// Whether it is a voter; otherwise it is a learner.
    pub votes: bool,
}

/// Membership of a replica in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaMembership {
    /// Receives the log without a vote.
    Learner,
    /// Votes.
    Voter,
    /// No longer a member of the group.
    Removed,
}
