//! Current and former replicas of the cluster.
//!
//! The membership in the replication layer decides votes. This copy lets every replica and every later leader
//! check which ids were already used, and lets events name the replicas that joined and left.

use muster_model::command::ReplicaRecord;
use muster_model::ids::ReplicaId;
use serde::{Deserialize, Serialize};

/// The replicas as last recorded; empty in a cluster whose replicas never changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicas {
    /// Current replicas, ascending by id.
    pub present: Vec<ReplicaRecord>,
    /// The highest id ever recorded: a new replica needs a higher one.
    pub highest: ReplicaId,
}

impl Replicas {
    /// Returns the current replica with this id.
    #[must_use]
    pub fn get(&self, id: ReplicaId) -> Option<&ReplicaRecord> {
        self.present.iter().find(|replica| replica.id == id)
    }

    /// Whether no replica was ever recorded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.present.is_empty()
    }
}
