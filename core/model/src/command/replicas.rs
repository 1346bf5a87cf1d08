//! The replicas of the cluster, as the leader finds them in the replication's own membership.

use serde::{Deserialize, Serialize};

use crate::ids::ReplicaId;

/// One replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaRecord {
    /// Its id, never used again once it is gone.
    pub id: ReplicaId,
    /// Where the others, clients and workers reach it: `host:port`.
    pub address: String,
    /// Whether it votes; otherwise it only learns.
    pub votes: bool,
}

/// What a replica is to the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaStanding {
    /// It receives the log and does not vote.
    Learner,
    /// It votes.
    Voter,
    /// It belongs to the group no more.
    Removed,
}
