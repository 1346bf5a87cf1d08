//! Which replicas the cluster has had.
//!
//! The replication's own membership is what counts for votes. This copy of it lets every replica and every later leader tell
//! which ids were in use once, and lets the events say who came and went.

use muster_model::command::ReplicaRecord;
use muster_model::ids::ReplicaId;
use serde::{Deserialize, Serialize};

/// The replicas as they were written down last; empty in a cluster whose replicas never changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replicas {
    /// Those of now, ascending by id.
    pub present: Vec<ReplicaRecord>,
    /// The highest id that was ever written down: a new replica needs a higher one.
    pub highest: ReplicaId,
}

impl Replicas {
    /// The replica with this id, if it is one of now.
    #[must_use]
    pub fn get(&self, id: ReplicaId) -> Option<&ReplicaRecord> {
        self.present.iter().find(|replica| replica.id == id)
    }

    /// Whether nothing was ever written down.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.present.is_empty()
    }
}
